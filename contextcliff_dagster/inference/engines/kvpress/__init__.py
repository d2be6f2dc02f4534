"""Compressed KV caches: a worker process in an environment of its own, and the engine that asks it.

Belongs here: the protocol of the two, the worker's life, the policies by name.
Does not belong here: what `models.yaml` may say about them (`models.entry_parts`).
"""
