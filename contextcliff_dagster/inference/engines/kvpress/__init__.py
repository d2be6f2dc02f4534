"""Compressed KV caches: a worker process in its own environment, and the engine that calls it.

Belongs here: their protocol, the worker's life cycle, the policies by name.
Does not belong here: the settings for them in `models.yaml` (`models.entry_parts`)."""
