"""Where a loss may begin: every place that some simple loss or falling curve makes plausible.

Two families explain the scores. That of `loss_family` is small: a step, a ramp or a dip. That of
`isotonic` holds every curve that never rises, shelves and stairs included, and follows noise that
no simple loss would; so it counts only where it explains the scores better by a deviance of
`SHAPE_PENALTY`, as criteria of model choice weigh parameters (Burnham and Anderson 2002, Model
Selection and Multimodel Inference, chapter 2). A place is possible while some curve that puts the
loss there lies within a limit of the best of all. The limits are those at which simulated caps kept
their promise in every class of benchmarks/accept.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.isotonic import (
    best_falling,
    loss_deviance,
    possible_crossings,
)

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.loss_family import Losses, Members
    from contextcliff_dagster.contracts.arrays import Floats


SHAPE_PENALTY = 12.0
STEPS, RAMPS, DIPS, FALLING = 1.40, 1.70, 1.70, 1.30
"""Times the quantile of one parameter's deviance (3.84 at 95%): where a loss lies is free as well,
and a ramp trades place against depth."""
LOCATION = 1.9
"""The same for the confidence set of a location: 7.3 at 95%."""


def earliest_loss(losses: Losses, tolerance: float, confidence: float) -> int:
    """The first cell in which ``tolerance`` may be lost; the number of cells where it is nowhere.

    A step or dip that is possible right before a cell makes the cell before it possible too where
    that holds several lengths: it may lie between them.
    """
    quantile = losses.quantile(confidence)
    cells = losses.cells
    falling = falling_q(losses)
    reached = max(losses.best_q, falling)
    earliest = len(cells.n)
    for kind, strictness in ((losses.steps, STEPS), (losses.dips, DIPS)):
        enough = kind.depths >= tolerance - 1e-9
        possible = 2.0 * (reached - kind.weighed) <= strictness * quantile
        hit = np.flatnonzero((possible & enough).any(axis=1))
        if len(hit):
            cell = int(kind.first[hit].min())
            shared = cell > 0 and cells.low[cell - 1] < cells.high[cell - 1]
            earliest = min(earliest, cell - shared)
    ramps = losses.ramps
    possible = 2.0 * (reached - ramps.q) <= RAMPS * quantile
    places = np.where(possible, ramp_place(ramps, tolerance), np.inf)
    if places.size and np.isfinite(first := float(places.min())):
        earliest = min(earliest, int(np.searchsorted(np.log(cells.high), first - 1e-9)))
    limit = FALLING * quantile
    if 2.0 * (reached - falling) <= limit:  # else no falling curve comes near, wherever it falls
        anyhow = reached + 0.5 * SHAPE_PENALTY
        deviance = loss_deviance(cells, tolerance, losses.dispersion, anyhow)
        possible_cells = np.flatnonzero(deviance <= limit)
        if len(possible_cells):
            earliest = min(earliest, cells.baseline_cells + int(possible_cells[0]))
    return earliest


def falling_q(losses: Losses) -> float:
    """Log-likelihood over the dispersion of the best falling curve, less half of its penalty."""
    return best_falling(losses.cells) / losses.dispersion - 0.5 * SHAPE_PENALTY


def ramp_place(ramps: Members, tolerance: float) -> Floats:
    """Log tokens at which each ramp has lost ``tolerance`` (P, depths); inf where it never does."""
    share = np.where(ramps.depths >= tolerance - 1e-9, tolerance / ramps.depths, np.inf)
    width = (ramps.end - ramps.onset)[:, None]
    with np.errstate(invalid="ignore"):
        out: Floats = ramps.onset[:, None] + width * share[None, :]
    return out


def half_drop_places(
    losses: Losses, confidence: float, least_drop: float, most_drop: float
) -> tuple[float, float]:
    """Shortest and longest length (tokens) at which half of the fall may have happened.

    By the steps and ramps of the family, and by any falling curve that passes half of
    ``least_drop`` or of ``most_drop`` there (shares of the baseline). A step lies anywhere between
    the two scored lengths around it.
    """
    limit = LOCATION * losses.quantile(confidence)
    falling = falling_q(losses)
    reached = max(losses.best_q, falling)
    cells = losses.cells
    places: list[float] = []
    steps, ramps = losses.steps, losses.ramps
    first = steps.first[(2.0 * (reached - steps.q) <= limit).any(axis=1)]
    if len(first):
        places += [float(cells.high[first.min() - 1]), float(cells.low[first.max()])]
    half = np.exp(0.5 * (ramps.onset + ramps.end)[(2.0 * (reached - ramps.q) <= limit).any(axis=1)])
    places += [float(half.min()), float(half.max())] if len(half) else []
    if 2.0 * (reached - falling) <= limit:
        anyhow = reached + 0.5 * SHAPE_PENALTY
        for drop in (least_drop, most_drop):
            crossings = possible_crossings(cells, 0.5 * drop, losses.dispersion, limit, anyhow)
            places += [float(tokens) for tokens in crossings or ()]
    return (min(places), max(places)) if places else (float(cells.low[0]), float(cells.high[-1]))
