"""The decline at each context size against the smallest: tests, intervals, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.proportions import band_quantile
from contextcliff_dagster.analysis.statistics.sign_flips import sign_flip_p_value
from contextcliff_dagster.contracts.results.fields import nulls
from contextcliff_dagster.extensions.continuation.analysis.equivalence import (
    intact_limits,
    intact_upper,
    score_upper,
    share_limits,
)
from contextcliff_dagster.extensions.continuation.analysis.outcomes import mean_known
from contextcliff_dagster.extensions.continuation.results import Decline, EndpointName, SizeOutcome

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.continuation.analysis.intervals import ClusterBootstrap
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

PERMUTATIONS = 4_999
MOST_ROUNDS = 20
"""Rounds of which the result keeps the means, for pictures."""


@dataclass(frozen=True, slots=True)
class SizeTests:
    """One endpoint of one arm by size (S), and the least p-value that each test can have (S)."""

    sizes: list[SizeOutcome]
    least: list[float | None]


def size_outcomes(
    arm: ArmOutcomes, endpoint: EndpointName, drawn: ClusterBootstrap, settings: AnalysisSettings
) -> SizeTests:
    """Means and declines of ``endpoint``, p-values not yet adjusted.

    Under no effect of the size a passage's difference is as likely to have the other sign; passages
    that lack an outcome at either size are left out of that pair.
    """
    means = arm.means(endpoint)
    base = baseline_size(means)
    sizes: list[SizeOutcome] = []
    least: list[float | None] = []
    for size, tokens in enumerate(arm.sizes):
        known = ~np.isnan(means[:, size])
        if endpoint == "score":
            low, high = drawn.interval(means[:, size])
        else:
            low, high = share_limits(arm.intact[:, size], band_quantile(settings.confidence, 1))
        found: tuple[Decline, float | None] | None = None
        if base is not None and size > base:
            found = _decline(arm, endpoint, (base, size), drawn, settings)
        sizes.append(
            SizeOutcome(
                context_tokens=int(tokens),
                n=int((~np.isnan(arm.outcomes(endpoint)[:, size])).sum()),
                n_passages=int(known.sum()),
                mean=float(means[known, size].mean()) if known.any() else None,
                ci_low=None if low is None else max(low, 0.0),
                ci_high=None if high is None else min(high, 1.0),
                decline=None if found is None else found[0],
                rounds=round_means(arm.outcomes(endpoint)[:, size]),
            )
        )
        least.append(None if found is None else found[1])
    return SizeTests(sizes, least)


def round_means(values: Floats) -> list[float | None]:
    """Means over passages (P, R) of the first `MOST_ROUNDS` rounds, None without any."""
    means = mean_known(values[:, :MOST_ROUNDS].T)
    return [None if np.isnan(mean) else float(mean) for mean in means]


def baseline_size(means: Floats) -> int | None:
    """The smallest size that has outcomes (index); None without any."""
    known = np.flatnonzero((~np.isnan(means)).any(axis=0))
    return int(known[0]) if len(known) else None


def _decline(
    arm: ArmOutcomes,
    endpoint: EndpointName,
    pair: tuple[int, int],
    drawn: ClusterBootstrap,
    settings: AnalysisSettings,
) -> tuple[Decline, float | None]:
    base, size = pair
    means = arm.means(endpoint)
    change = lost(means, base, size)
    known = change[~np.isnan(change)]
    if not len(known):
        reason = (
            f"No passage has outcomes at {arm.sizes[base]:,} and at {arm.sizes[size]:,} tokens."
        )
        empty = nulls(Decline, n_passages=0, p_exact=False, not_tested=reason)
        return empty, None
    rng = np.random.default_rng((settings.seed, 20, size, int(endpoint == "intact")))
    p_value, exact = sign_flip_p_value(known, PERMUTATIONS, rng, one_sided=True)
    low, high = drawn.interval(change)
    n, s = drawn.sums(change)
    if endpoint == "score":
        at_base = float(means[~np.isnan(change), base].mean())
        upper = score_upper(n, s, at_base, settings.confidence)
    else:
        sides = arm.intact[:, base], arm.intact[:, size]
        upper = intact_upper(*sides, settings.confidence)
        if not np.ptp(known):
            # Resampled passages that agree would have the width of single outcomes.
            limits = intact_limits(*sides, band_quantile(settings.confidence, 1))
            low, high = limits or (low, high)
    decline = Decline(
        n_passages=len(known),
        decline=float(known.mean()),
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_exact=exact,
        p_holm=None,
        upper=upper,
    )
    return decline, 0.5 ** int((known != 0.0).sum())


def lost(means: Floats, base: int, size: int) -> Floats:
    """Each passage's mean at ``base`` less that at ``size`` (P); differences of rounding are 0."""
    change = means[:, base] - means[:, size]
    return np.where(np.abs(change) < 1e-12, 0.0, change)
