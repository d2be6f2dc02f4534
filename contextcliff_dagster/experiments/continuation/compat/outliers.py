"""Which rounds Context-Tester takes for outliers and generates again.

A generation that collapses is such an outlier: its rule throws away what it set out to find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from contextcliff_dagster.experiments.continuation.compat.averages import Round, values_of

OUTLIER_METRICS = (
    *("cloze_score", "vocabulary_diversity", "sentence_length_variance"),
    *("pct_unfamiliar_words", "avg_sentence_length"),
)
_DECISIVE = ("cloze_score", "vocabulary_diversity")
_LEAST, _SLACK, _MOST_REPLACED, _LEAST_LENGTH = 4, 1e-9, 0.3, 0.6


def iqr_outliers(
    values: Sequence[float], multiplier: float = 1.5
) -> tuple[list[int], dict[str, float]]:
    """Return the places of values beyond the quartiles by ``multiplier`` ranges, and the bounds.

    Quartiles are interpolated linearly (Hyndman and Fan 1996, type 7). Fewer than four values have
    none, and no bounds.
    """
    if len(values) < _LEAST:
        return [], {}
    q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    low, high = q1 - multiplier * (q3 - q1), q3 + multiplier * (q3 - q1)
    places = [k for k, x in enumerate(values) if x < low - _SLACK or x > high + _SLACK]
    bounds = {"q1": q1, "q3": q3, "iqr": q3 - q1, "lower_bound": low, "upper_bound": high}
    return places, {**bounds, "median": median}


def round_outliers(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return which rounds are outliers in which of `OUTLIER_METRICS`; severe are those in two.

    Fewer than four rounds have none, with the reason `insufficient_data`.
    """
    if len(rounds) < _LEAST:
        return {"has_outliers": False, "reason": "insufficient_data"}
    details: dict[str, Any] = {}
    times: Counter[int] = Counter()
    for metric in OUTLIER_METRICS:
        values = values_of(rounds, metric)
        places, bounds = iqr_outliers(values) if len(values) == len(rounds) else ([], {})
        times.update(places)
        if places:
            details[metric] = {
                "outlier_indices": places,
                "outlier_values": [values[k] for k in places],
                "iqr_stats": bounds,
                "outlier_count": len(places),
            }
    return {
        "has_outliers": bool(details),
        "total_rounds": len(rounds),
        "metrics_analyzed": list(OUTLIER_METRICS),
        "outlier_details": details,
        "outlier_rounds": sorted(times),
        "severe_outlier_rounds": sorted(k for k, n in times.items() if n >= 2),
    }


def is_long_enough(tokens: int, max_tokens: int) -> bool:
    """Whether a round counts: below 60% of what was asked for, its whole batch fails."""
    return tokens >= _LEAST_LENGTH * max_tokens


def selected_rounds(rounds: Sequence[Round]) -> list[int]:
    """Places of rounds that are outliers in cloze score or diversity, or in two metrics."""
    if len(rounds) < _LEAST:
        return []
    found = round_outliers(rounds)
    decisive = (found["outlier_details"].get(m, {}).get("outlier_indices", []) for m in _DECISIVE)
    return sorted({*found["severe_outlier_rounds"], *(k for places in decisive for k in places)})


Decision = Literal["keep", "replace", "too_many"]


def replacement(rounds: Sequence[Round]) -> tuple[Decision, list[int]]:
    """Return what becomes of a batch, and the places to generate once more.

    With none it is kept; with more than 30% of the rounds it is kept as it is; else exactly those
    are generated again, put in their places and not examined again.
    """
    places = selected_rounds(rounds)
    if not places:
        return "keep", []
    if len(places) > _MOST_REPLACED * len(rounds):
        return "too_many", []
    return "replace", places
