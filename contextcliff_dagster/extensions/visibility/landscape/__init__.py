"""Scores over a task's whole space: many configurations on many splits.

Belongs here: tabulating them, whether they differ enough to be searched, regret, starts, the file.
Does not belong here: how a search walks over them (`baselines`).
"""
