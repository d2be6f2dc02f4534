"""Three functions for notebooks and scripts: `analyze`, `profile`, `compare`, and what they return.

Belongs here: columns of any library to records, results that show themselves. Does not belong here:
measuring, analysing, drawing; the functions call what the command line calls, so that both give the
same figures.
"""
