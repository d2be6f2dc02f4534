"""The averages over the rounds of one context size."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.experiments.continuation.compat.metrics import reading_level

Round = Mapping[str, Any]
"""One generation: its figures, and what else its file says of it."""

_NO_AVERAGE = ("round_number", "context_length")


def averaged(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the means of the numeric fields of ``rounds`` (at least one), to four decimals.

    Fields that are no numbers, and `round_number`, are those of the first round. `reading_level`
    follows from the mean cloze score. Added: `num_rounds` and the sample deviations
    `cloze_score_std` and `vocab_diversity_std`, 0 for a single round, which is returned as it is.
    """
    mean = dict(rounds[0])
    if len(rounds) > 1:
        for field, first in rounds[0].items():
            if _is_number(first) and field not in _NO_AVERAGE:
                mean[field] = round(statistics.mean(values_of(rounds, field)), 4)
        if "cloze_score" in mean:
            mean["reading_level"] = reading_level(mean["cloze_score"])
    mean["num_rounds"] = len(rounds)
    mean["cloze_score_std"] = _deviation(rounds, "cloze_score", 3)
    mean["vocab_diversity_std"] = _deviation(rounds, "vocabulary_diversity", 4)
    return mean


def values_of(rounds: Sequence[Round], field: str) -> list[float]:
    """The numbers that the rounds have under ``field``."""
    return [one[field] for one in rounds if _is_number(one.get(field))]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _deviation(rounds: Sequence[Round], field: str, digits: int) -> float:
    values = values_of(rounds, field)
    return round(statistics.stdev(values), digits) if len(values) > 1 else 0.0
