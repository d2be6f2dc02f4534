"""From a model's output to its score: parsing, normalisation, scores and failure tags.

Belongs here: every judgement of one output against its accepted answers. Does not belong here:
statistics over many records (`analysis`); calling a model, and recording that no answer came back
(`inference`). All functions are pure: the same rows give the same records, so records can be
deleted and rebuilt.
"""

from typing import Final

SCORER_VERSION: Final = "3"
"""Version of the scorers shipped here, in every record and result (null in older files: 1). Raise
it when the same output would get another score: older records are then scored again when read."""
