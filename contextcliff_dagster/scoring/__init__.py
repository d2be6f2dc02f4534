"""From a model's output to its score: parsing, normalisation, scores, failure tags.

Belongs here: every judgement of one output against its accepted answers.
Does not belong here: statistics over many records (`analysis`); asking a model, and recording that
nothing came back (`inference`).
All of it is pure: the same rows give the same records, so records can be thrown away and rebuilt.
"""

from typing import Final

SCORER_VERSION: Final = "3"
"""Version of the scorers shipped here, in every record and result (null in older files: 1). Raise
it when the same output would get another score: older records are then scored again when read."""
