"""Experiments that the core does not know: each a room with all that is its own.

Belongs here: commands, typed keys, engines, documents, analysis, results, words and report of one
experiment, its entries of models.yaml and its shipped studies. An entry point names each room's
`extension.EXTENSION` (pyproject.toml); nothing below this room names one, and none imports another.
"""
