"""Context-Tester's composite score and the tests on it.

They are kept for comparison: two-sided tests, a rank correlation of a few means, and no control of
what a null would give. What a conclusion rests on is in `analysis`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.experiments.continuation.compat.averages import Round

Correction = Literal["holm", "bonferroni", "fdr_bh"]

_DEFAULTS = {
    "vocabulary_diversity": 0.5,
    "cloze_score": 25.0,
    "adjacent_coherence": 0.5,
    "bigram_repetition_rate": 0.1,
}
_RESAMPLES, _SEED, _ALPHA = 10_000, 42, 0.05


def composite_score(
    diversity: float, cloze: float, coherence: float, bigram_repetition: float
) -> float:
    """0 to 100, higher is worse: the mean of four parts, each cut to 0..1.

    A text that repeats itself for ever gains nothing beyond the cut, and one whose cloze score
    falls without end counts as good.
    """
    parts = (
        1 - (diversity - 0.3) / 0.3,
        (cloze - 15) / 25,
        1 - (coherence - 0.3) / 0.4,
        bigram_repetition / 0.3,
    )
    return 100 * sum(min(max(part, 0.0), 1.0) for part in parts) / len(parts)


def composite_of(figures: Round) -> float:
    """The composite score of a generation; a figure that is missing counts as middling."""
    given = {key: figures.get(key) for key in _DEFAULTS}
    known = {k: _DEFAULTS[k] if value is None else float(value) for k, value in given.items()}
    return composite_score(*known.values())


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95% percentile interval (Efron 1979): 10,000 resamples, seed 42."""
    if len(values) < 2:
        only = float(values[0]) if values else 0.0
        return only, only, only
    data = np.asarray(values, dtype=float)
    # The legacy generator, whose stream NumPy keeps for ever: the same limits to the last digit.
    draws = np.random.RandomState(_SEED).randint(0, len(data), (_RESAMPLES, len(data)))
    low, high = np.percentile(data[draws].mean(axis=1), [2.5, 97.5])
    return float(data.mean()), float(low), float(high)


def mann_whitney(baseline: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """U of ``baseline`` and the two-sided p (Mann and Whitney 1947); 0 and 1 below two values."""
    if len(baseline) < 2 or len(other) < 2:
        return 0.0, 1.0
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(baseline, other, alternative="two-sided")
    return float(found.statistic), float(found.pvalue)


def rank_biserial(baseline: Sequence[float], other: Sequence[float]) -> float:
    """1 - 2U/(n1 n2) (Wendt 1972): -1 to 1, positive where ``other`` is larger, thus worse."""
    above = np.subtract.outer(np.asarray(baseline, float), np.asarray(other, float))
    wins = (above > 0).sum() + (above == 0).sum() / 2
    return float(1 - 2 * wins / above.size)


def magnitude(effect: float) -> Literal["small", "medium", "large"]:
    """The name of a rank-biserial correlation's size."""
    if abs(effect) > 0.5:
        return "large"
    return "medium" if abs(effect) > 0.3 else "small"


def adjusted(p_values: Sequence[float], method: Correction = "holm") -> list[float]:
    """p values adjusted for their number (Holm 1979; Benjamini and Hochberg 1995; Bonferroni)."""
    if method == "bonferroni":
        return [min(p * len(p_values), 1.0) for p in p_values]
    if method == "holm" or not p_values:
        return [p for p in holm(p_values) if p is not None]
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)]


def spearman(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Rank correlation and its p by the t distribution (Spearman 1904); 0 and 1 below three."""
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0, 1.0
    from scipy.stats import spearmanr

    found: Any = spearmanr(x, y)
    return float(found.statistic), float(found.pvalue)


def degradation_statistics(rounds: Mapping[int, Sequence[Round]]) -> dict[str, Any]:
    """Return composite scores, tests against the smallest context, effects, trend and a summary.

    Args:
        rounds: the generations of each context size (tokens), in any order; none of them empty.
    """
    sizes = sorted(rounds)
    scores = {size: [composite_of(one) for one in rounds[size]] for size in sizes}
    base, others = scores[sizes[0]], sizes[1:]
    rho, trend_p = spearman(sizes, [_mean(scores[size]) for size in sizes])
    tests = {size: mann_whitney(base, scores[size]) for size in others}
    corrected = adjusted([p for _, p in tests.values()])
    effects = {size: rank_biserial(base, scores[size]) for size in others}
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
                "significant_corrected": corrected_p < _ALPHA,
            }
            for (size, (u, p)), corrected_p in zip(tests.items(), corrected, strict=True)
        },
        "effect_sizes": {
            size: {"effect_size": effect, "magnitude": magnitude(effect)}
            for size, effect in effects.items()
        },
        "summary": {
            "degradation_detected": degrading,
            "max_effect_size": max(map(abs, effects.values()), default=0.0),
            "num_significant_degradations": sum(p < _ALPHA for p in corrected),
        },
    }


def _with_interval(scores: Sequence[float]) -> dict[str, Any]:
    mean, low, high = bootstrap_mean(scores)
    ends = {"mean": mean, "ci_lower": low, "ci_upper": high}
    return {"composite_scores": list(scores), **ends, "std": float(np.std(scores))}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
