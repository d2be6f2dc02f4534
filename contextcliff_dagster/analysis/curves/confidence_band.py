"""A band that holds the whole curve at once, whatever the shape of its fall.

Let the mean score mu(x) not rise with length x. The mean over any stretch of lengths that lies
wholly at or beyond x is then at most mu(x), and over any stretch at or before x at least mu(x). So
with limits for the means of *all* stretches that hold together,

    max of lower limits over stretches beyond x  <=  mu(x)  <=  min of upper limits before x,

at every x at once (monotone bands from multiscale tests: Duembgen 2003, Bernoulli 9, 423-449; here
with a coarse system of stretches). No smoothness is assumed: a cliff and a ramp are covered alike,
where a band around a smoother or a fitted family misses the edges of what it cannot bend to.

*Stretches*: all runs between edges at every 5% of the examples, from 5% on. *q*: the quantile of
the largest |z| over all stretches, simulated with normal scores of the cells' own weights (fixed
seed). *Limits*: Clopper and Pearson's of n / phi trials at the normal tails of q, with the
dispersion phi of the fitted curve, so that all limits hold together at the stated confidence; the
normal limits themselves fail for ten right-or-wrong answers.

Where the scores dip and recover, or the data refute that they do not rise, the limits are those of
curves that fall up to some length and rise beyond it, whichever length that is.

What it costs: the shortest 5% have no upper limit and the longest 5% no lower one: a score may fall
with the very last document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import deviance_quantile

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.cells import Cells
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_EDGES = 20
_DRAWS = 4_000


def curve_limits(
    cells: Cells,
    tokens: Ints,
    dispersion: float,
    confidence: float,
    degrees: int | None = None,
    *,
    recovers: bool = False,
) -> tuple[Floats, Floats]:
    """Lower and upper limits (P, P) of the whole curve at lengths ``tokens`` (P).

    For curves that do not rise; with ``recovers``, or where the data refute that (some lower limit
    exceeds the upper one), for curves that fall up to some length and do not fall beyond it: the
    limits then span those of every such turn that is not refuted itself. Where none is left they
    say nothing: 0 and 1.

    Args:
        dispersion, degrees: of the scores, as fitted by `logistic_family`.
    """
    first, last = _stretches(cells)
    cum_n = np.concatenate([[0.0], np.cumsum(cells.n)])
    cum_s = np.concatenate([[0.0], np.cumsum(cells.s)])
    n, s = cum_n[last] - cum_n[first], cum_s[last] - cum_s[first]
    quantile = _joint_quantile(cells.n, first, last, confidence)
    # Where phi was estimated its error widens the joint quantile as it does a single one.
    quantile *= np.sqrt(
        deviance_quantile(confidence, degrees) / deviance_quantile(confidence, None)
    )
    low, high = _limits(n, s, quantile, dispersion)
    beyond = cells.low[first][None, :] >= tokens[:, None]
    before = cells.high[last - 1][None, :] <= tokens[:, None]

    def turning_at(cell: int) -> tuple[Floats, Floats] | None:
        """Limits of curves that fall over the cells before ``cell`` and rise from it on."""
        falls, rises = last <= cell, first >= cell
        left = tokens[:, None] < (cells.low[cell] if cell < len(cells.n) else np.inf)
        holds_up = np.where(left, beyond & falls, before & rises)
        holds_down = np.where(left, before & falls, beyond & rises)
        lower = np.where(holds_up, low, 0.0).max(axis=1, initial=0.0)
        upper = np.where(holds_down, high, 1.0).min(axis=1, initial=1.0)
        return None if (lower > upper).any() else (lower, upper)

    falling = None if recovers else turning_at(len(cells.n))
    if falling is not None:
        return falling
    turns = [turning_at(int(cell)) for cell in np.unique(np.append(first, last))]
    left = [limits for limits in turns if limits is not None]
    if not left:
        return np.zeros(len(tokens)), np.ones(len(tokens))
    lower, upper = (np.array(side) for side in zip(*left, strict=True))
    return lower.min(axis=0), upper.max(axis=0)


def _stretches(cells: Cells) -> tuple[Ints, Ints]:
    """First cells and ends (exclusive) of all stretches between edges at every 5% of examples."""
    reached = np.cumsum(cells.n) / cells.n.sum()
    inner = np.searchsorted(reached, np.arange(1, _EDGES) / _EDGES - 1e-9) + 1
    edges = np.unique(np.concatenate([[0], inner, [len(cells.n)]]))
    first, last = (side.ravel() for side in np.meshgrid(edges, edges, indexing="ij"))
    return first[first < last], last[first < last]


def _joint_quantile(n: Floats, first: Ints, last: Ints, confidence: float) -> float:
    """Quantile of the largest |z| over the stretches, z standard normal and jointly Gaussian."""
    rng = np.random.default_rng(3)
    edges = np.unique(np.concatenate([first, last]))
    weights = np.add.reduceat(n, edges[:-1])
    walk = np.zeros((_DRAWS, len(edges)))
    steps = rng.standard_normal((_DRAWS, len(weights))) * np.sqrt(weights)
    np.cumsum(steps, axis=1, out=walk[:, 1:])
    a, b = np.searchsorted(edges, first), np.searchsorted(edges, last)
    size = np.concatenate([[0.0], np.cumsum(weights)])
    largest = (np.abs(walk[:, b] - walk[:, a]) / np.sqrt(size[b] - size[a])).max(axis=1)
    return float(np.quantile(largest, confidence))


def _limits(n: Floats, s: Floats, quantile: float, dispersion: float) -> tuple[Floats, Floats]:
    """Clopper and Pearson's limits of the means (K) at the tails of +-``quantile``.

    Of n / dispersion trials; at least one counts as such.
    """
    from scipy.special import betaincinv, ndtr

    trials = np.maximum(n / dispersion, 1.0)
    hits = np.clip(s / n, 0.0, 1.0) * trials
    tail = float(ndtr(-quantile))
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-12), trials - hits + 1.0, tail), 0.0)
    misses = np.maximum(trials - hits, 1e-12)
    high = np.where(hits < trials, betaincinv(hits + 1.0, misses, 1.0 - tail), 1.0)
    return low, high
