"""Where a loss lies: the instrument's posterior of falling curves over context sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_paths import draw_curves
from contextcliff_dagster.analysis.curves.falling_process import falling_posterior
from contextcliff_dagster.analysis.statistics.proportions import design_effect, score_correlation
from contextcliff_dagster.experiments.common.crossing import crossing_of
from contextcliff_dagster.extensions.continuation.analysis.decline import baseline_size, lost
from contextcliff_dagster.extensions.continuation.results import EndpointName, LossLocation

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes

_DRAWS = 4_000
TAIL = 0.5
"""Of the error rate, beyond each end of the interval (benchmarks/continuation.py)."""
_LEAST_LOSS = 0.03
"""Share of the baseline below which a drawn curve has no loss to place."""
_BORROWED = 8.0
"""Passages' worth of the mean variance that each size borrows."""
_LEAST, _MOST = 0.01, 0.99
_MOST_WORTH = 10.0
"""A generation's score is worth as many 0/1 outcomes at most: the least dispersion is .1."""


def locate_loss(
    arm: ArmOutcomes,
    endpoint: EndpointName,
    shown_at: int | None,
    settings: AnalysisSettings,
) -> LossLocation | None:
    """Where half of the loss at the largest size has happened; None where curves show no loss.

    Args:
        shown_at: first size in tokens whose decline is significant.
    """
    means = arm.means(endpoint)
    base = baseline_size(means)
    if base is None:
        return None
    paired = [s for s in range(base + 1, len(arm.sizes)) if (~np.isnan(lost(means, base, s))).any()]
    if not paired:
        return None
    places = [base, *paired]
    sizes = [int(arm.sizes[s]) for s in places]
    level, worth = _levels(arm, endpoint, places)
    count = len(places)
    posterior = falling_posterior(
        worth, worth * level, np.ones(count), 1, np.full(count, 1.0 / count)
    )
    rng = np.random.default_rng((settings.seed, 21, int(endpoint == "intact")))
    mean, kept = draw_curves(posterior, _DRAWS, rng)
    losing = kept[:, -1] < 1.0 - _LEAST_LOSS
    if not losing.any():
        return None
    fall = 1.0 - np.concatenate([np.ones((int(losing.sum()), 1)), kept[losing]], axis=1)
    crossing = crossing_of(fall, sizes, 0.5 * fall[:, -1], TAIL * (1.0 - settings.confidence))
    return LossLocation(
        tokens=crossing.tokens,
        low_tokens=crossing.low or sizes[0],
        high_tokens=crossing.high or sizes[-1],
        shown_at_tokens=shown_at,
        loss=float((mean[losing] * fall[:, -1]).mean()),
    )


def _levels(arm: ArmOutcomes, endpoint: EndpointName, places: list[int]) -> tuple[Floats, Floats]:
    """Mean at each of ``places``, by paired declines, and how many 0/1 outcomes it is worth."""
    means = arm.means(endpoint)
    base = places[0]
    changes = [lost(means, base, s) for s in places[1:]]
    known = [change[~np.isnan(change)] for change in changes]
    level = np.full(len(places), float(np.nanmean(means[:, base])))
    level[1:] -= [change.mean() for change in known]
    level = level.clip(_LEAST, _MOST)
    generations = np.array([(~np.isnan(arm.outcomes(endpoint)[:, s])).sum() for s in places])
    if endpoint == "intact":
        return level, generations / _likeness(arm, places)
    spread = np.array([change.var(ddof=1) if len(change) > 1 else np.nan for change in known])
    pooled = float(np.nanmean(spread)) if not np.isnan(spread).all() else 0.25
    pairs = np.array([len(change) for change in known], np.float64)
    spread = (pairs * np.nan_to_num(spread, nan=pooled) + _BORROWED * pooled) / (pairs + _BORROWED)
    # Half of a difference's variance is the other size's, half the baseline's.
    variance = np.concatenate([[0.5 * spread.mean() / pairs.mean()], 0.5 * spread / pairs])
    worth = level * (1.0 - level) / np.maximum(variance, 1e-9)
    return level, np.minimum(worth, _MOST_WORTH * generations)


def _likeness(arm: ArmOutcomes, places: list[int]) -> Floats:
    """Design effect of rounds of one passage, by size."""
    outcomes = arm.intact[:, places]
    known = ~np.isnan(outcomes)
    passage, size, _ = np.nonzero(known)
    correlation = score_correlation(passage * len(places) + size, outcomes[known], size)[0]
    rounds = known.sum(axis=2)
    return np.array([design_effect(rounds[:, i], correlation) for i in range(len(places))])
