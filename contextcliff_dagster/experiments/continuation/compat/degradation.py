"""Context-Tester's rule for degradation points, and the change from the first to the last size.

Passages of one novel in place of generations, without any degradation, meet it in 99% of runs: it
knows no noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from contextcliff_dagster.experiments.continuation.compat.averages import Round

_RULES = (
    ("cloze_score", "cloze_score", "rose", 3.0),
    ("vocabulary_diversity", "vocabulary_diversity", "dropped", 0.05),
    ("sentence_length_variance", "sentence_variance", "dropped", 5.0),
)
"""Field, its name in the result, direction, and the change from which on it counts."""


def trend_analysis(averages: Mapping[int, Round]) -> dict[str, Any]:
    """Return `trends` and `degradation_points` of averages by context size (tokens)."""
    ordered = [averages[size] for size in sorted(averages)]
    points = [
        {"context_length": size, "metric": name, "change": change, "direction": direction}
        for (_, before), (size, after) in pairwise(sorted(averages.items()))
        for field, name, direction, most in _RULES
        if (change := _change(before, after, field, direction)) is not None and change > most
    ]
    trends = {
        field: {"start": start, "end": end, "change": end - start}
        for field in ("cloze_score", "vocabulary_diversity")
        if ordered
        and (start := ordered[0].get(field)) is not None
        and (end := ordered[-1].get(field)) is not None
    }
    return {"trends": trends, "degradation_points": points}


def _change(before: Round, after: Round, field: str, direction: str) -> float | None:
    first, second = before.get(field), after.get(field)
    if first is None or second is None:
        return None
    return float(second - first if direction == "rose" else first - second)
