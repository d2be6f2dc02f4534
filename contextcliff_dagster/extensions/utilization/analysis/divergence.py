"""Where two formats part: the first length at which their scores differ by more than a margin.

Each format's scores over the scales have the posterior of the instrument (`falling_process`: no
shape is assumed, except that a mean that has fallen stays down). Where one drawn curve first
exceeds the other by the margin is a draw of the divergence. Questions on one document count by
their design effect, and the formats as independent, which is cautious where they agree. Tests of
each scale alone hold the truth as well and are several scales wider, since they cannot use that
both were alike before (benchmarks/utilization_error_rates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_paths import draw_curves
from contextcliff_dagster.analysis.curves.falling_process import falling_posterior
from contextcliff_dagster.analysis.statistics.proportions import design_effect
from contextcliff_dagster.experiments.common.crossing import Crossing, crossing_of
from contextcliff_dagster.extensions.utilization.analysis.wording import divergence_sentence
from contextcliff_dagster.extensions.utilization.rendering.formats import FORMATS
from contextcliff_dagster.extensions.utilization.results import Divergence, DivergenceStatus

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.utilization.analysis.asked import Question
    from contextcliff_dagster.extensions.utilization.analysis.matching import Matched, Side
    from contextcliff_dagster.extensions.utilization.analysis.score_intervals import Likeness

_DRAWS = 2_000
TAIL = 1.0
"""Of the error rate, beyond each end of the interval, which is rounded outwards to scales: so
intervals of planted readers held the truth in .955 to 1.000 of data sets."""


def first_crossing(
    matched: Matched,
    likeness: Likeness,
    scales: Sequence[int],
    margin: float,
    confidence: float,
    seeds: tuple[int, int],
) -> Crossing:
    """The first length at which ``a`` scores more than ``margin`` above ``b``.

    Args:
        scales: tokens of the scales, ascending, at each of which both have answers; at least two.
        seeds: of the draws of ``a`` and of ``b``, different.
    """
    drawn = _draws(matched.a, likeness.a, len(scales), seeds[0])
    drawn -= _draws(matched.b, likeness.b, len(scales), seeds[1])
    return crossing_of(drawn, scales, margin, TAIL * (1.0 - confidence))


def _draws(side: Side, correlation: float, scales: int, seed: int) -> Floats:
    """Mean scores at each scale (draws, scales), from the posterior."""
    n = np.bincount(side.scale, minlength=scales).astype(np.float64)
    s: Floats = np.bincount(side.scale, weights=side.score, minlength=scales).astype(np.float64)
    worth = np.ones(scales)
    for i in range(scales):
        of_document = np.unique(side.document[side.scale == i], return_counts=True)[1]
        worth[i] = design_effect(of_document, correlation)
    # Scales weigh alike, so that what is likely does not depend on how many answers each has.
    posterior = falling_posterior(n, s, worth, 1, np.full(scales, 1.0 / scales))
    base, kept = draw_curves(posterior, _DRAWS, np.random.default_rng(seed))
    curves: Floats = base[:, None] * np.concatenate([np.ones((_DRAWS, 1)), kept], axis=1)
    return curves


def locate_divergence(
    matched: Matched,
    likeness: Likeness,
    bands: Sequence[tuple[float | None, float | None]],
    answered: Sequence[int],
    asked: Question,
) -> Divergence:
    """Where the two formats of ``asked`` part, if their band says that they do.

    Args:
        bands: limits of the simultaneous band at each scale of ``asked``.
        answered: scales at which both have answers; ``matched`` has no other.
    """
    margin = asked.margin
    place = np.full(len(asked.scales), -1)
    place[list(answered)] = np.arange(len(answered))
    sides = [replace(side, scale=place[side.scale]) for side in (matched.a, matched.b)]
    scales = [asked.scales[i].tokens for i in answered]
    seeds = [asked.settings.seed * len(FORMATS) + FORMATS.index(f) for f in (asked.a, asked.b)]

    def crossing(first: int) -> Crossing:
        if len(scales) < 2:
            return Crossing(None, None, None)
        second = 1 - first
        turned = replace(matched, a=sides[first], b=sides[second])
        same = replace(likeness, a=likeness.b, b=likeness.a) if first else likeness
        ends = seeds[first], seeds[second]
        return first_crossing(turned, same, scales, margin, asked.settings.confidence, ends)

    status: DivergenceStatus = "not_parted"
    better, shown_at = None, None
    for i in answered:
        low, high = bands[i]
        if (low is not None and low > margin) or (high is not None and high < -margin):
            better = asked.a if low is not None and low > margin else asked.b
            shown_at = asked.scales[i].tokens
            break
    if better is None:
        # Either format may part from the other later: the earlier limit holds for both.
        lows = [crossing(first).low for first in (0, 1)]
        earliest = None if None in lows else min(one for one in lows if one is not None)
        found = Crossing(None, earliest, None)
    elif shown_at == scales[0]:
        status, found = "at_smallest", Crossing(None, None, shown_at)
    else:
        status, found = "parted", crossing(0 if better == asked.a else 1)
    result = Divergence(
        status=status,
        better=better,
        tokens=found.tokens,
        low_tokens=found.low,
        high_tokens=found.high,
        shown_at_tokens=shown_at,
        sentence="",
    )
    largest = scales[-1] if scales else None
    return replace(result, sentence=divergence_sentence(result, asked.a, asked.b, margin, largest))
