"""Shared parts of experiments: preparing a study, measuring its calls, reading its records.

Belongs here: reuse of earlier results, calls to lower packages with parts of the study, and paths
of results. Does not belong here: the work itself (lower packages), and presentation (`defs`).
"""
