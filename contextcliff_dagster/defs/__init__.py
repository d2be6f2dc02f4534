"""Dagster only: assets, partitions, checks, jobs, resources, executor.

Belongs here: how the rooms' functions become assets, what the UI shows of them, and running them
in process for the command line. Does not belong here: anything a notebook would want; assets call
the rooms and add nothing of their own to a result.
"""
