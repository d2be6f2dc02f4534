"""Context-Tester's statistics: averages, outliers, degradation points, convergence, tests.

They serve only for comparison. The outlier rule discards collapsed generations, which are what it
should find. The rule for degradation points ignores noise: passages of one novel, which do not
degrade, meet it in 99% of runs if used in place of generations. The tests are two-sided, use a rank
correlation of a few means and have no null control. Conclusions rest on `analysis` instead.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeGuard

import numpy as np

from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.extensions.continuation.compat.metrics import METRICS, reading_level

Round = Mapping[str, Any]
"""One generation: its figures and the other fields of its file."""

_NO_AVERAGE = ("round_number", "context_length")


def averaged(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the means of the numeric fields of ``rounds`` (at least one), to four decimals.

    Other fields, and `round_number`, come from the first round. `reading_level` follows from the
    mean cloze score. `num_rounds` and the sample deviations `cloze_score_std` and
    `vocab_diversity_std` are added. A single round stays as it is, with deviations of 0.
    """
    mean = dict(rounds[0])
    if len(rounds) > 1:
        averages = {
            field: round(statistics.mean(values_of(rounds, field)), 4)
            for field, first in rounds[0].items()
            if is_number(first) and field not in _NO_AVERAGE
        }
        others = {field: first for field, first in rounds[0].items() if field not in averages}
        mean = {**others, **averages}  # in the reference's order of columns
        if "cloze_score" in mean:
            mean["reading_level"] = reading_level(mean["cloze_score"])
    mean["num_rounds"] = len(rounds)
    mean["cloze_score_std"] = _deviation(rounds, "cloze_score", 3)
    mean["vocab_diversity_std"] = _deviation(rounds, "vocabulary_diversity", 4)
    return mean


def values_of(rounds: Sequence[Round], field: str) -> list[float]:
    """Return the numeric values of ``field`` in the rounds."""
    return [figures[field] for figures in rounds if is_number(figures.get(field))]


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether ``value`` is a number; booleans are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _deviation(rounds: Sequence[Round], field: str, digits: int) -> float:
    values = values_of(rounds, field)
    return round(statistics.stdev(values), digits) if len(values) > 1 else 0.0


OUTLIER_METRICS = (
    *("cloze_score", "vocabulary_diversity", "sentence_length_variance"),
    *("pct_unfamiliar_words", "avg_sentence_length"),
)
_DECISIVE = ("cloze_score", "vocabulary_diversity")
_LEAST, _SLACK, _MOST_REPLACED, _LEAST_LENGTH = 4, 1e-9, 0.3, 0.6


def iqr_outliers(values: Sequence[float], multiplier: float = 1.5) -> list[int]:
    """Return the indices of values over ``multiplier`` IQRs beyond the quartiles.

    Quartiles are interpolated linearly (Hyndman and Fan 1996, type 7). Fewer than four values
    have no outliers.
    """
    if len(values) < _LEAST:
        return []
    q1, q3 = (float(q) for q in np.quantile(values, [0.25, 0.75]))
    low, high = q1 - multiplier * (q3 - q1), q3 + multiplier * (q3 - q1)
    return [k for k, x in enumerate(values) if x < low - _SLACK or x > high + _SLACK]


def is_long_enough(tokens: int, max_tokens: int) -> bool:
    """Return whether a round has 60% of ``max_tokens``; if it does not, its whole batch fails."""
    return tokens >= _LEAST_LENGTH * max_tokens


def selected_rounds(rounds: Sequence[Round]) -> list[int]:
    """Return the indices of outliers in cloze score or diversity, or in any two metrics."""
    times: Counter[int] = Counter()
    decisive: set[int] = set()
    for metric in OUTLIER_METRICS:
        values = values_of(rounds, metric)
        places = iqr_outliers(values) if len(values) == len(rounds) else []
        times.update(places)
        decisive.update(places if metric in _DECISIVE else ())
    return sorted(decisive | {k for k, n in times.items() if n >= 2})


def replacement(rounds: Sequence[Round]) -> list[int]:
    """Return the indices of a batch's rounds to generate again; they are not examined again.

    A batch with outliers in more than 30% of its rounds is kept as it is.
    """
    places = selected_rounds(rounds)
    return places if len(places) <= _MOST_REPLACED * len(rounds) else []


_RULES = (
    ("cloze_score", "cloze_score", "rose", 3.0),
    ("vocabulary_diversity", "vocabulary_diversity", "dropped", 0.05),
    ("sentence_length_variance", "sentence_variance", "dropped", 5.0),
)
"""Field, its name in the result, direction, and the change above which it counts as degradation."""


def trend_analysis(averages: Mapping[int, Round]) -> dict[str, Any]:
    """Return the `trends` and `degradation_points` of averages by context size (tokens)."""
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


_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Convergence:
    """Context sizes (tokens, ascending), and at which of them each metric is near the author's."""

    tolerance: float
    sizes: tuple[int, ...]
    near: Mapping[str, tuple[bool, ...]]

    def first_size(self, metric: str) -> int | None:
        """Return the smallest size at which ``metric`` is near the author's figure, or None."""
        pairs = zip(self.sizes, self.near[metric], strict=True)
        return next((size for size, near in pairs if near), None)

    def groups(self) -> list[list[str]]:
        """Group metrics that are near at the same sizes: Jaccard index with the first over .7.

        Metrics that are never near belong to no group.
        """
        remaining = [metric for metric, near in self.near.items() if any(near)]
        groups: list[list[str]] = []
        while remaining:
            first = remaining[0]
            group = [m for m in remaining if _jaccard(self.near[first], self.near[m]) > _ALIKE]
            groups.append(group)
            remaining = [metric for metric in remaining if metric not in group]
        return groups


def convergence(
    averages: Mapping[int, Round], author: Round, tolerance: float = 0.1
) -> Convergence:
    """Return the context sizes at which the averages are near the author's figures.

    An average is near if it is within ``tolerance`` (a fraction) of the author's figure. Figures of
    0 are left out; no average is near a negative figure, because the reference swaps its bounds.
    """
    sizes = tuple(sorted(averages))
    near = {
        metric: tuple(_is_near(averages[size].get(metric), aim, tolerance) for size in sizes)
        for metric in METRICS
        if isinstance(aim := author.get(metric), int | float) and aim
        if any(averages[size].get(metric) is not None for size in sizes)
    }
    return Convergence(tolerance, sizes, near)


def _is_near(value: float | None, aim: float, tolerance: float) -> bool:
    return value is not None and aim * (1 - tolerance) <= value <= aim * (1 + tolerance)


def _jaccard(first: Sequence[bool], second: Sequence[bool]) -> float:
    union = sum(a or b for a, b in zip(first, second, strict=True))
    return sum(a and b for a, b in zip(first, second, strict=True)) / union if union else 0.0


_DEFAULTS = {
    "vocabulary_diversity": 0.5,
    "cloze_score": 25.0,
    "adjacent_coherence": 0.5,
    "bigram_repetition_rate": 0.1,
}
_RESAMPLES, _SEED, _ALPHA = 10_000, 42, 0.05


def composite_of(figures: Round) -> float:
    """Return the mean of four parts, each clipped to 0..1, as 0 to 100; higher is worse.

    Missing figures get mid-range defaults. Clipping hides how extreme a repetition is, and a text
    with an extremely low cloze score counts as good.
    """
    raw = {key: figures.get(key) for key in _DEFAULTS}
    values = {k: _DEFAULTS[k] if value is None else float(value) for k, value in raw.items()}
    diversity, cloze, coherence, bigram_repetition = values.values()
    parts = (
        1 - (diversity - 0.3) / 0.3,
        (cloze - 15) / 25,
        1 - (coherence - 0.3) / 0.4,
        bigram_repetition / 0.3,
    )
    return 100 * sum(min(max(part, 0.0), 1.0) for part in parts) / len(parts)


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95% percentile interval (Efron 1979, 10,000 draws, seed 42)."""
    if len(values) < 2:
        value = float(values[0]) if values else 0.0
        return value, value, value
    data = np.asarray(values, dtype=float)
    # The legacy generator, whose stream NumPy keeps for ever: the same limits to the last digit.
    draws = np.random.RandomState(_SEED).randint(0, len(data), (_RESAMPLES, len(data)))
    low, high = np.percentile(data[draws].mean(axis=1), [2.5, 97.5])
    return float(data.mean()), float(low), float(high)


def mann_whitney(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return U of ``baseline`` and two-sided p (Mann and Whitney 1947); (0, 1) below two values."""
    if len(baseline) < 2 or len(other) < 2:
        return 0.0, 1.0
    from scipy.stats import mannwhitneyu

    test = mannwhitneyu(baseline, other, alternative="two-sided")
    return float(test.statistic), float(test.pvalue)


def rank_biserial(baseline: Sequence[float], other: Sequence[float]) -> float:
    """Return 1 - 2U/(n1 n2) (Wendt 1972), -1 to 1; positive if ``other`` is larger, thus worse."""
    above = np.subtract.outer(np.asarray(baseline, float), np.asarray(other, float))
    wins = (above > 0).sum() + (above == 0).sum() / 2
    return float(1 - 2 * wins / above.size)


def magnitude(effect: float) -> Literal["small", "medium", "large"]:
    """Classify the magnitude of a rank-biserial correlation."""
    if abs(effect) > 0.5:
        return "large"
    return "medium" if abs(effect) > 0.3 else "small"


def rejected(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses Holm's method rejects; a p value exactly at its limit is."""
    n = len(p_values)
    order = sorted(range(n), key=p_values.__getitem__)
    met = [p_values[place] <= _ALPHA / (n - k) for k, place in enumerate(order)]
    chosen = set(order[: met.index(False) if False in met else n])
    return [place in chosen for place in range(n)]


def spearman(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return Spearman's rank correlation and p by Student's t; (0, 1) below three values."""
    if len(x) < 3:
        return 0.0, 1.0
    if len(set(x)) == 1 or len(set(y)) == 1:  # undefined for constants
        return math.nan, math.nan
    from scipy.stats import spearmanr

    test: Any = spearmanr(x, y)
    return float(test.statistic), float(test.pvalue)


def degradation_statistics(rounds: Mapping[int, Sequence[Round]]) -> dict[str, Any]:
    """Return composite scores, tests against the smallest context, effects, trend and a summary.

    ``rounds``: generations by context size (tokens), in any order, with at least one per size.
    """
    sizes = sorted(rounds)
    scores = {size: [composite_of(figures) for figures in rounds[size]] for size in sizes}
    base, larger = scores[sizes[0]], sizes[1:]
    rho, trend_p = spearman(sizes, [statistics.fmean(scores[size]) for size in sizes])
    tests = {size: mann_whitney(base, scores[size]) for size in larger}
    p_values = [p for _, p in tests.values()]
    corrected, rejections = holm(p_values), rejected(p_values)
    effects = {size: rank_biserial(base, scores[size]) for size in larger}
    degrading = rho > 0.5 and trend_p < _ALPHA
    return {
        "context_sizes": sizes,
        "baseline_context": sizes[0],
        "composite_scores": {size: _with_interval(scores[size]) for size in sizes},
        "trend_correlation": rho,
        "trend_p_value": trend_p,
        "has_degradation_trend": degrading,
        "significance_tests": {
            size: {
                "u_statistic": u,
                "p_value": p,
                "significant": p < _ALPHA,
                "corrected_p_value": corrected_p,
                "significant_corrected": is_rejected,
            }
            for (size, (u, p)), corrected_p, is_rejected in zip(
                tests.items(), corrected, rejections, strict=True
            )
        },
        "effect_sizes": {
            size: {"effect_size": effect, "magnitude": magnitude(effect)}
            for size, effect in effects.items()
        },
        "summary": {
            "degradation_detected": degrading,
            "max_effect_size": max(map(abs, effects.values()), default=0.0),
            "num_significant_degradations": sum(rejections),
        },
    }


def _with_interval(scores: Sequence[float]) -> dict[str, Any]:
    mean, low, high = bootstrap_mean(scores)
    ends = {"mean": mean, "ci_lower": low, "ci_upper": high}
    return {"composite_scores": list(scores), **ends, "std": float(np.std(scores))}
