"""models.yaml: entries, the table of engines, serving identities, base URLs, tokenizers.

Belongs here: reading and checking the settings that a user writes for a model.
Does not belong here: communication with the model (`engines`)."""
