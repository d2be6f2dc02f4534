"""Report of a continuation experiment: figures, tables and sections of the page.

Belongs here: pictures and sentences about results. Does not belong here: statistics.
"""
