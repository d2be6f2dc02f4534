"""Variance components of the scores, and the passages that a decline needs to be shown."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.extensions.continuation.analysis.decline import baseline_size, lost
from contextcliff_dagster.extensions.continuation.results import Components, Plan

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

POWERS = (0.8, 0.9)
MOST_PASSAGES = 2_000


def components_of(arm: ArmOutcomes) -> Components | None:
    """Components of variance of the scores; None where fewer than two passages are paired.

    Rounds: pooled within passage and size. What sizes do to passages differently: half the variance
    of the passages' differences to the smallest size, less what rounds contribute. With a single
    round the two are one, and ``round`` is null.
    """
    means = arm.means("score")
    base = baseline_size(means)
    if base is None:
        return None
    known = ~np.isnan(arm.score)
    rounds = known.sum(axis=2)
    degrees = int((rounds - 1).clip(0).sum())
    of_round = None
    if degrees:
        off = np.where(known, arm.score - np.nan_to_num(means)[:, :, None], 0.0)
        of_round = float((off**2).sum()) / degrees
    spreads, from_rounds = [], []
    for size in range(base + 1, means.shape[1]):
        change = lost(means, base, size)
        there = ~np.isnan(change)
        if there.sum() > 1:
            spreads.append(float(change[there].var(ddof=1)))
            share = 1.0 / rounds[there, base] + 1.0 / rounds[there, size]
            from_rounds.append(float(share.mean()) * (of_round or 0.0))
    if not spreads:
        return None
    within = max(0.5 * float(np.mean(spreads) - np.mean(from_rounds)), 0.0)
    sized = ~np.isnan(means)
    of_passage = np.nanmean(means[sized.any(axis=1)], axis=1)
    mean_rounds = float(rounds[rounds > 0].mean())
    noise = (within + (of_round or 0.0) / mean_rounds) / sized.any(axis=0).sum()
    between = float(of_passage.var(ddof=1)) if len(of_passage) > 1 else 0.0
    return Components(
        passage=float(max(between - noise, 0.0) ** 0.5),
        size_within_passage=within**0.5,
        round=None if of_round is None else of_round**0.5,
        rounds=mean_rounds,
    )


def plan_study(
    components: Components, base: float, margin: float, tests: int, confidence: float
) -> list[Plan]:
    """Passages that show a decline of ``margin``, and of twice as much, with each of `POWERS`.

    At the rounds of the study, and where the rounds' variance is known at half and twice as many.

    Args:
        base: mean score at the smallest size.
        tests: in the family of Holm's adjustment, whose first step counts.
    """
    level = (1.0 - confidence) / tests
    now = max(round(components.rounds), 1)
    rounds = [now] if components.round is None else sorted({max(now // 2, 1), now, 2 * now})
    return [
        Plan(
            decline=decline,
            power=power,
            rounds=each,
            n_passages=passages_needed(components, base, decline, power, each, level),
        )
        for decline in (margin, min(2.0 * margin, 1.0))
        for power in POWERS
        for each in rounds
    ]


def passages_needed(
    components: Components, base: float, decline: float, power: float, rounds: int, level: float
) -> int | None:
    """Passages that show ``decline`` at one size with ``power``, tested one-sided at ``level``.

    By the noncentral t distribution, to which the power of sign flips is close; and at least as
    many as can give so small a p-value at all, 2^-P. A decline may be a share of generations that
    lose their whole score: the variance of rounds is the larger of the two cases' (a mixture of 0
    and the baseline's scores). None where more than 2,000 are needed, or ``base`` has no such
    decline.
    """
    from scipy.special import nctdtr, stdtrit

    if decline > base:
        return None
    round_variance = (components.round or 0.0) ** 2
    hit = decline / base
    mixed = (1.0 - hit) * round_variance + hit * (1.0 - hit) * base**2
    variance = 2.0 * components.size_within_passage**2
    variance += (round_variance + max(round_variance, mixed)) / rounds

    def enough(passages: int) -> bool:
        critical = stdtrit(passages - 1.0, 1.0 - level)
        # Beyond a shift of 37 the distribution function is not computed, and the power is 1.
        shift = min(decline * math.sqrt(passages / max(variance, 1e-9)), 37.0)
        reached = 1.0 - float(nctdtr(passages - 1.0, shift, critical))
        return reached >= power and 0.5**passages <= level

    if not enough(MOST_PASSAGES):
        return None
    return 2 + bisect_left(range(2, MOST_PASSAGES), True, key=enough)
