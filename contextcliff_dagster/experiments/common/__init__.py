"""Shared parts of experiments: preparing a study, measuring its calls, reading its records.

Belongs here: what is reused, which room is called with which part of the study, which file the
result goes to. Does not belong here: the work itself (the rooms below), how it is shown (`defs`).
"""
