"""models.yaml: entries, the table of engines, serving identities, base URLs, tokenizers.

Belongs here: reading and checking what a user writes about a model.
Does not belong here: talking to it (`engines`).
"""
