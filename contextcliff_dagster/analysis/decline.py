"""The family of declines that describes a curve: where it falls, how far, how suddenly.

Members are mu(x) = m0 * h(x) with h(x) = 1 - d * s((x - c) / w), x = log tokens, s the logistic
function: a plateau m0 that loses the share d around c over the width w; w = 0 is a step, a wide w
a ramp, d = 0 a flat curve. Every member's m0 is profiled out, all members at once.

The fit is a quasi-binomial likelihood of the summed scores of each cell (neighbouring documents),
l = sum S log mu + (N - S) log(1 - mu), scaled by a dispersion phi that is robust to the correlation
of questions on one document (Liang and Zeger 1986): scores may be 0/1 or graded.

The family describes; it does not certify. Real curves have shelves that no logistic follows, and a
cap read off the family lies beyond the truth there: caps come from ``monotone``, which assumes no
shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.intervals import deviance_quantile
from contextcliff_dagster.analysis.units import Documents

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_CELLS = 200
"""Cells of neighbouring documents: finer ones cost time and move a cap by under 0.5% of ranks."""
BASELINE_SHARE = 0.15
"""Share of the samples, shortest first, that is the baseline; no decline is placed inside it."""
DEPTHS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 0.98)
"""Shares of the plateau a member may lose."""
WIDTHS = (0.02, 0.045, 0.085, 0.16)
"""Logistic widths as shares of the log-length range; a step (width 0) stands on every cell edge."""
SMOOTH_KNOTS = 50
_MU_FLOOR = 1e-3
_REFINED_PLACES = 50
_COARSE_DEPTHS, _FINE_DEPTHS = 26, 61
_PARAMETERS = 3
"""Of a curve: plateau, place and depth (a step has no width)."""


@dataclass(frozen=True)
class Cells:
    """Neighbouring documents summed; all arrays of length G, shortest first.

    ``x`` is the mean log length, ``low`` and ``high`` the shortest and longest length in tokens,
    ``baseline_share`` the share of the samples that is the baseline.
    """

    x: Floats
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    n: Floats
    s: Floats
    baseline_share: float = BASELINE_SHARE

    @cached_property
    def edges(self) -> Floats:
        """Log lengths between neighbouring cells (G - 1)."""
        return 0.5 * (np.log(self.high[:-1]) + np.log(self.low[1:]))

    @cached_property
    def baseline_cells(self) -> int:
        """How many cells make the baseline region (at least one)."""
        reached = np.searchsorted(np.cumsum(self.n), self.baseline_share * self.n.sum() - 1e-9)
        return int(min(reached + 1, len(self.n)))


def merge_cells(
    documents: Documents, at_most: int = MAX_CELLS, baseline_share: float = BASELINE_SHARE
) -> Cells:
    """Documents summed to at most ``at_most`` cells of similar n; equal lengths stay together."""
    lengths, group = np.unique(documents.length_tokens, return_inverse=True)
    n = np.bincount(group, weights=documents.n)
    s = np.bincount(group, weights=documents.s)
    if len(lengths) > at_most:
        middle = np.cumsum(n) - 0.5 * n
        cell = np.minimum((middle / n.sum() * at_most).astype(np.int64), at_most - 1)
        _, cell = np.unique(cell, return_inverse=True)
    else:
        cell = np.arange(len(lengths))
    count = int(cell[-1]) + 1
    first = np.searchsorted(cell, np.arange(count), side="left")
    last = np.searchsorted(cell, np.arange(count), side="right") - 1
    total: Floats = np.add.reduceat(n, first)
    x = np.add.reduceat(n * np.log(lengths), first) / total
    summed = np.add.reduceat(s, first)
    return Cells(x, lengths[first], lengths[last], total, summed, baseline_share)


@dataclass(frozen=True)
class DeclineFit:
    """Every member of the family with its likelihood.

    Attributes:
        centre, width, depth: parameters (J); width in log tokens.
        plateau: the profiled m0 (J).
        retained: h(x) per member and cell (J, G).
        baseline: mean of h over the baseline cells (J).
        q: quasi log-likelihood over phi (J).
        dispersion: phi.
        degrees: documents less the curve's parameters where phi was estimated from them, else
            ``None``.
    """

    cells: Cells
    centre: Floats
    width: Floats
    depth: Floats
    plateau: Floats
    retained: Floats
    baseline: Floats
    q: Floats
    dispersion: float
    degrees: int | None

    @property
    def best(self) -> int:
        return int(np.argmax(self.q))

    @cached_property
    def deviance(self) -> Floats:
        """2 (Q_max - Q) / phi per member (J)."""
        out: Floats = 2.0 * (self.q[self.best] - self.q)
        return out

    def limit(self, confidence: float) -> float:
        """The deviance within which a member is in the confidence region of one parameter."""
        return deviance_quantile(confidence, self.degrees)


def fit_declines(documents: Documents, baseline_share: float = BASELINE_SHARE) -> DeclineFit:
    """Fit the whole family to ``documents`` (at least two distinct lengths)."""
    cells = merge_cells(documents, baseline_share=baseline_share)
    return _fit(cells, documents, *_members(cells))


def _fit(
    cells: Cells, documents: Documents, centre: Floats, width: Floats, depth: Floats
) -> DeclineFit:
    retained = 1.0 - depth[:, None] * _share_lost(cells.x, centre, width)
    k = cells.baseline_cells
    baseline = retained[:, :k] @ (cells.n[:k] / cells.n[:k].sum())
    plateau = _profile_plateau(retained, cells)
    q = log_likelihood(plateau, retained, cells)
    best = int(np.argmax(q))
    x = np.log(documents.length_tokens)
    lost = _share_lost(x, centre[best : best + 1], width[best : best + 1])[0]
    phi = cluster_dispersion(documents, plateau[best] * (1.0 - depth[best] * lost))
    degrees = None if known_dispersion(documents) else max(len(documents.n) - _PARAMETERS, 1)
    return DeclineFit(
        cells, centre, width, depth, plateau, retained, baseline, q / phi, phi, degrees
    )


def log_likelihood(plateau: Floats, retained: Floats, cells: Cells) -> Floats:
    """Quasi-binomial log-likelihood of each member (J)."""
    mu = np.clip(plateau[:, None] * retained, _MU_FLOOR, 1.0 - _MU_FLOOR)
    out: Floats = np.log(mu) @ cells.s + np.log1p(-mu) @ (cells.n - cells.s)
    return out


def _share_lost(x: Floats, centre: Floats, width: Floats) -> Floats:
    """s((x - c) / w) for members (J) at log lengths (G): (J, G); a step where w = 0."""
    distance = x[None, :] - centre[:, None]
    scaled = distance / np.where(width > 0, width, 1e-9)[:, None]
    out: Floats = 1.0 / (1.0 + np.exp(-np.clip(scaled, -35.0, 35.0)))
    return out


def _members(cells: Cells) -> tuple[Floats, Floats, Floats]:
    """Centres, widths and depths of the family; the flat curve first."""
    start, end = cells.edges[cells.baseline_cells - 1 :], float(cells.x[-1])
    if not len(start):
        start = cells.edges[-1:]
    depths = np.array(DEPTHS)
    span = max(end - float(cells.x[0]), 1e-6)
    blocks = [(np.zeros(1), np.zeros(1), np.zeros(1))]
    c, d = np.meshgrid(start, depths, indexing="ij")
    blocks.append((c.ravel(), np.zeros(c.size), d.ravel()))
    for share in WIDTHS:
        w = share * span
        ranks = np.interp(np.linspace(0, 1, SMOOTH_KNOTS), np.linspace(0, 1, len(start)), start)
        beyond = np.arange(end, end + 1.5 * w, max(0.5 * w, 1e-9))[1:]
        before = float(start[0]) - w * np.array([1.5, 0.75])
        c, d = np.meshgrid(np.concatenate([before, ranks, beyond]), depths, indexing="ij")
        blocks.append((c.ravel(), np.full(c.size, w), d.ravel()))
    centre, width, depth = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return centre, width, depth


_BLOCK = 256
"""Members at once: what they work on stays in the processor's cache, an eighth of the time."""


def _profile_plateau(retained: Floats, cells: Cells, steps: int = 10) -> Floats:
    """The m0 in (0, 1] that maximises each member's likelihood, by guarded Newton steps (J)."""
    blocks = [retained[i : i + _BLOCK] for i in range(0, len(retained), _BLOCK)]
    return np.concatenate([_profile_block(block, cells, steps) for block in blocks])


def _profile_block(retained: Floats, cells: Cells, steps: int) -> Floats:
    failures = cells.n - cells.s
    total = float(cells.s.sum())
    floor = _MU_FLOOR
    ceiling = (1.0 - _MU_FLOOR) / retained.max(axis=1)
    m = np.clip(total / (retained @ cells.n), floor, ceiling)
    work = np.empty_like(
        retained
    )  # J x G is megabytes: a new array a step costs more than the sums
    for _ in range(steps):
        np.multiply(retained, -m[:, None], out=work)
        work += 1.0
        np.divide(retained, work, out=work)
        slope = total / m - work @ failures
        curvature = total / m**2 + np.square(work, out=work) @ failures
        moved = np.clip(
            m + slope / np.maximum(curvature, 1e-12), np.maximum(floor, 0.3 * m), ceiling
        )
        settled = bool(np.abs(moved - m).max() < 1e-5)
        m = moved
        if settled:
            break
    return m


def known_dispersion(documents: Documents) -> bool:
    """Single 0/1 scores are binomial: nothing about their spread is to be estimated."""
    return documents.binary and bool(documents.n.max() == 1)


def cluster_dispersion(documents: Documents, mean: Floats) -> float:
    """Cluster-robust Pearson dispersion around ``mean`` (D); never below 1 for 0/1 scores.

    phi = sum_d (s_d - n_d mu_d)^2 / sum_d n_d mu_d (1 - mu_d) * D / (D - 3).
    """
    if known_dispersion(documents):
        return 1.0
    mu = np.clip(mean, 0.01, 0.99)
    residual = documents.s - documents.n * mu
    expected = float((documents.n * mu * (1.0 - mu)).sum())
    count = len(documents.n)
    phi = float((residual**2).sum()) / expected * count / max(count - _PARAMETERS, 1)
    return max(phi, 1.0 if documents.binary else 0.1)


def refine(fit: DeclineFit, documents: Documents) -> DeclineFit:
    """The members the data leave, with their depth resolved: for estimates, not for caps.

    In two passes, the second over the depths that the first leaves: an interval ends at the last
    member inside it, so that a coarse grid would make every interval of the drop too short.
    """
    near = np.argsort(fit.deviance, kind="stable")
    near = near[fit.deviance[near] <= 3 * fit.limit(0.95)]
    places = np.column_stack([fit.centre, fit.width])[near]
    _, first = np.unique(places.round(9), axis=0, return_index=True)
    places = places[np.sort(first)[:_REFINED_PLACES]]

    def resolved(depths: Floats) -> DeclineFit:
        centre, width = (np.repeat(places[:, i], len(depths)) for i in (0, 1))
        return _fit(fit.cells, documents, centre, width, np.tile(depths, len(places)))

    coarse = np.linspace(0.0, 1.0, _COARSE_DEPTHS)
    first_pass = resolved(coarse)
    left = first_pass.depth[first_pass.deviance <= 3 * first_pass.limit(0.95)]
    least, most = left.min() - coarse[1], left.max() + coarse[1]
    return resolved(np.linspace(max(least, 0.0), min(most, 1.0), _FINE_DEPTHS))


def retained_at(fit: DeclineFit, members: NDArray[np.int64], x: Floats) -> Floats:
    """h of ``members`` (K) at log lengths (P): (K, P)."""
    lost = _share_lost(x, fit.centre[members], fit.width[members])
    return 1.0 - fit.depth[members][:, None] * lost
