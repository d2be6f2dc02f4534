"""Dagster definitions: assets, partitions, checks, jobs, resources, executor.

Belongs here: turning functions of other packages into assets, and their metadata in the UI. Does
not belong here: anything a notebook would need; assets call the other packages and add nothing to
a result.
"""
