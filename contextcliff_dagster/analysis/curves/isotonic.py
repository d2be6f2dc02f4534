"""How early a loss may begin, against every curve that falls with length: ramps, steps, shelves.

The hypothesis H_t says that from cell t on the mean is at most (1 - tolerance) of the baseline. It
is compared with the best curve that never rises, by the likelihood ratio of two isotonic fits

    LR(t) = 2 (Q - Q_t) / phi,

where Q lets the curve be any non-increasing one and Q_t holds it at or below the loss from t on. No
shape is assumed, so none can be wrong; for a mean at one point the statistic has a limit
distribution free of the curve (Banerjee and Wellner 2001, Annals of Statistics 29, 1699-1731). H_t
is the stronger the smaller t, hence LR falls with t, and the first t that is not refuted is where a
loss may begin.

The baseline region (the shortest 15% of the samples) is one block with mean m0, profiled on a grid;
a bounded isotonic fit is the free one clipped at its bounds (Robertson, Wright and Dykstra 1988).
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.cells import Cells
    from contextcliff_dagster.contracts.arrays import Floats, Ints

_LEVELS = 31
_LEAST, _MOST = 1e-4, 1.0 - 1e-4


def loss_deviance(
    cells: Cells, tolerance: float, dispersion: float, at_least: float = -np.inf
) -> Floats:
    """LR(t) for every cell t beyond the baseline region, in order: (G - baseline cells,).

    ``at_least``: what the best explanation reaches anyhow (quasi log-likelihood over the
    dispersion), where other curves than falling ones are explanations too.
    """
    best_free, best = falling_fits(cells).likelihoods(tolerance)
    # Each t was fitted as the very place of the loss; "from t on" allows an earlier one too.
    best = np.maximum.accumulate(best[:-1])
    reached = max(best_free / dispersion, at_least)
    return np.maximum(2.0 * (reached - best / dispersion), 0.0)


def possible_crossings(
    cells: Cells, loss: float, dispersion: float, limit: float, at_least: float = -np.inf
) -> tuple[int, int] | None:
    """Tokens between which a curve that never rises may pass (1 - ``loss``) of the baseline.

    A place is possible where holding the curve at or above that level before it and at or below
    it from there on costs a deviance of at most ``limit``; ``at_least`` as in `loss_deviance`. The
    interval is closed outwards, to the scored lengths around it, and ends at the longest where the
    curve may never get there; ``None`` where no place is possible.
    """
    best_free, best = falling_fits(cells).likelihoods(loss)
    reached = max(best_free / dispersion, at_least)
    # Rounding: at a limit of 0 the best place itself is left.
    possible = np.flatnonzero(2.0 * (reached - best / dispersion) <= limit + 1e-6)
    if not len(possible):
        return None
    first, last = cells.baseline_cells + int(possible[0]), cells.baseline_cells + int(possible[-1])
    return int(cells.high[first - 1]), int(cells.high[min(last, len(cells.n) - 1)])


def best_falling(cells: Cells) -> float:
    """Quasi log-likelihood of the best curve that never rises, its baseline region one block."""
    return falling_fits(cells).best


@lru_cache(maxsize=4)
def falling_fits(cells: Cells) -> FallingFits:
    """Return the curves that never rise, of the cells beyond the baseline region.

    Kept for the cells used last: a verdict asks for them at every tolerance.
    """
    k = cells.baseline_cells
    base_n, base_s = float(cells.n[:k].sum()), float(cells.s[:k].sum())
    return FallingFits(cells.n[k:], cells.s[k:], base_n, base_s)


class FallingFits:
    """Curves that never rise, on cells of ``n`` trials and ``s`` successes (G).

    Args:
        base_n, base_s: of the baseline region, one block before the first cell.
    """

    def __init__(self, n: Floats, s: Floats, base_n: float, base_s: float) -> None:
        free, before, after = isotonic_fits(n, s)
        # The fit of all cells is the one before a split behind the last.
        self._before = _Clipped(np.column_stack([before, free]), n, s, before_split=True)
        self._after = _Clipped(after, n, s, before_split=False)
        self._levels = _baseline_levels(base_n, base_s, free)
        self._base = _likelihood(self._levels, base_n, base_s)

    @cached_property
    def best(self) -> float:
        """Quasi log-likelihood of the best curve of all."""
        whole = self._before.likelihoods(self._levels, np.zeros_like(self._levels))[:, -1]
        return float((self._base + whole).max())

    def likelihoods(self, loss: float) -> tuple[float, Floats]:
        """`best`, and that of the best curve that passes the loss right before each cell t.

        Its last entry means never: (G + 1,).
        """
        held = (1.0 - loss) * self._levels
        passing = self._before.likelihoods(self._levels, held)
        passing[:, :-1] += self._after.likelihoods(held, np.zeros_like(held))
        best: Floats = (self._base[:, None] + passing).max(axis=0)
        return self.best, best


class _Clipped:
    """Fits on one side of every split, with their likelihoods when clipped at bounds.

    Fits fall with the cell, so that those beyond a bound are contiguous: their likelihood is the
    bound's on summed scores, that of the rest a difference of running sums.

    Args:
        fits: column t the split, row i the cell; those of i < t count, or else of i >= t.
    """

    def __init__(self, fits: Floats, n: Floats, s: Floats, *, before_split: bool) -> None:
        splits = np.arange(fits.shape[1])
        first = np.zeros_like(splits) if before_split else splits
        count = splits if before_split else len(n) - splits
        self._start = np.concatenate([[0], np.cumsum(count)[:-1]])
        self._first, self._count = first, count
        split = np.repeat(splits, count)
        cell = np.arange(len(split)) - self._start[split] + first[split]
        fit = fits[cell, split]
        self._keys = 2.0 * split - fit
        self._offset = 2.0 * splits
        self._q = np.concatenate([[0.0], np.cumsum(_likelihood(fit, n[cell], s[cell]))])
        self._s, self._f = (np.concatenate([[0.0], np.cumsum(of)]) for of in (s, n - s))

    def likelihoods(self, most: Floats, least: Floats) -> Floats:
        """Of every split's fit held between ``least`` and ``most`` (K): (K, splits)."""
        above, inside = self._beyond(most), self._beyond(least)
        end = self._first + self._count
        q: Floats = self._q[self._start + inside] - self._q[self._start + above]
        q += self._of(most, self._first, self._first + above)
        q += self._of(least, self._first + inside, end)
        return q

    def _beyond(self, bound: Floats) -> Ints:
        """How many fits of every split lie above each bound (K, splits)."""
        index = np.searchsorted(self._keys, self._offset[None, :] - bound[:, None])
        out: Ints = index - self._start
        return out

    def _of(self, mean: Floats, first: Ints, end: Ints) -> Floats:
        """Likelihood of one mean (K) in cells ``first`` to ``end`` - 1, (K, splits) or (splits)."""
        mu = np.clip(mean, _LEAST, _MOST)[:, None]
        out: Floats = (self._s[end] - self._s[first]) * np.log(mu)
        out += (self._f[end] - self._f[first]) * np.log1p(-mu)
        return out


def isotonic_fits(n: Floats, s: Floats) -> tuple[Floats, Floats, Floats]:
    """Non-increasing fits of all cells (G), of the cells before each t and of those from t on.

    The latter two are (G, G): row i the cell, column t the split; meaningful for i < t and i >= t.
    By the max-min formula, mean_i = max over b >= i of min over a <= i of the mean of cells a..b,
    all splits at once by running extremes.

    >>> whole, _, _ = isotonic_fits(np.array([10.0, 10.0, 10.0]), np.array([6.0, 8.0, 2.0]))
    >>> whole.tolist()
    [0.7, 0.7, 0.2]
    """
    count = len(n)
    cum_n, cum_s = np.concatenate([[0.0], np.cumsum(n)]), np.concatenate([[0.0], np.cumsum(s)])
    a, b = np.arange(count)[:, None], np.arange(count)[None, :]
    inside = a <= b
    weight = np.where(inside, cum_n[b + 1] - cum_n[a], 1.0)
    mean = np.where(inside, (cum_s[b + 1] - cum_s[a]) / weight, np.inf)
    least = np.minimum.accumulate(mean, axis=0)  # [i, b]: over a <= i
    prefix = np.maximum.accumulate(np.where(inside, least, -np.inf), axis=1)  # [i, b]: up to b
    before = np.full((count, count), np.nan)
    before[:, 1:] = prefix[:, :-1]  # the cells before t end at b = t - 1
    most = np.where(inside, mean, -np.inf)[:, ::-1]
    most = np.maximum.accumulate(most, axis=1)[:, ::-1]  # [a, i]: over b >= i
    reach = np.where(inside, most, np.inf)
    after = np.minimum.accumulate(reach[::-1], axis=0)[::-1].T  # [i, t]: over t <= a <= i
    return prefix[:, -1], np.nan_to_num(before, neginf=0.0), np.where(a >= b, after, 0.0)


def _baseline_levels(n: float, s: float, free: Floats) -> Floats:
    """Candidates for m0: within four standard errors of the baseline's mean, and any higher fit."""
    mean = s / n
    error = np.sqrt(max(mean * (1.0 - mean), 1.0 / n) / n)
    low, high = mean - 4.0 * error, max(mean + 4.0 * error, float(free.max()))
    return np.unique(np.append(np.linspace(low, high, _LEVELS), mean).clip(_LEAST, _MOST))


def _likelihood(mean: Floats, n: Floats | float, s: Floats | float) -> Floats:
    mu = np.clip(mean, _LEAST, _MOST)
    return s * np.log(mu) + (n - s) * np.log1p(-mu)
