"""Compressed KV caches: a worker process in its own environment, and the engine that calls it.

Belongs here: the protocol between them, the worker's life cycle, and the policies by name.
Does not belong here: the settings for them in `models.yaml` (`models.entry_parts`)."""
