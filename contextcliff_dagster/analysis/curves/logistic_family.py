"""The family of declines that describes a curve: where it falls, how far, how suddenly.

Members are mu(x) = m0 * h(x) with h(x) = 1 - d * s((x - c) / w), x = log tokens, s the logistic
function: a plateau m0 that loses the share d around c over the width w; w = 0 is a step, a wide w
a ramp, d = 0 a flat curve. Every member's m0 is profiled out, all members at once.

The fit is a quasi-binomial likelihood of the summed scores of each cell (neighbouring documents),
l = sum S log mu + (N - S) log(1 - mu), scaled by a dispersion phi that is robust to the correlation
of questions on one document (Liang and Zeger 1986): scores may be 0/1 or graded.

The family describes; it does not certify. Real curves have shelves that no logistic follows, and a
cap read off the family lies beyond the truth there: caps come from ``isotonic``, which assumes no
shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.curves.cells import BASELINE_SHARE, Cells, merge_cells
from contextcliff_dagster.analysis.curves.profiled_plateau import MU_FLOOR, profiled, two_levels
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster.analysis.statistics.intervals import deviance_quantile
from contextcliff_dagster.analysis.statistics.overdispersion import known_dispersion

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints

DEPTHS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 0.98)
"""Shares of the plateau a member may lose."""
WIDTHS = (0.02, 0.045, 0.085, 0.16)
"""Logistic widths as shares of the log-length range; a step (width 0) lies on every cell edge."""
SMOOTH_KNOTS = 50
_REFINED_PLACES = 50
_COARSE_DEPTHS, _FINE_DEPTHS = 21, 41
_PARAMETERS = 3
"""Of a curve: plateau, place and depth (a step has no width)."""
_LINE_LEVELS, _LEAST_DIFFERENCE = 41, 2.0
"""Of straight lines at either end; of deviances by which a step and a line are distinguished."""


@dataclass(frozen=True)
class DeclineFit:
    """Every member of the family with its likelihood.

    Attributes:
        centre, width, depth: parameters (J); width in log tokens.
        plateau: the profiled m0 (J).
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
    return _fit(cells, documents, *_places(cells), np.array((0.0, *DEPTHS)))


def _fit(
    cells: Cells, documents: Documents, centre: Floats, width: Floats, depths: Floats
) -> DeclineFit:
    """All of ``depths`` at places ``centre`` and ``width`` (P): P x depths members."""
    plateau, q = (np.empty((len(centre), len(depths))) for _ in range(2))
    sudden = width == 0
    lost = _share_lost(cells.x, centre[sudden], width[sudden])
    totals = float(cells.n.sum()), float(cells.s.sum())
    plateau[sudden], q[sudden] = two_levels(lost @ cells.n, lost @ cells.s, *totals, depths)
    lost = _share_lost(cells.x, centre[~sudden], width[~sudden])
    plateau[~sudden], q[~sudden] = profiled(lost, depths, cells.n, cells.s)
    k = cells.baseline_cells
    weights = cells.n[:k] / cells.n[:k].sum()
    early = _share_lost(cells.x[:k], centre, width) @ weights
    baseline = 1.0 - early[:, None] * depths
    place, deep = np.unravel_index(int(np.argmax(q)), q.shape)
    x = np.log(documents.length_tokens)
    lost = _share_lost(x, centre[place : place + 1], width[place : place + 1])[0]
    phi = cluster_dispersion(documents, plateau[place, deep] * (1.0 - depths[deep] * lost))
    degrees = None if known_dispersion(documents) else max(len(documents.n) - _PARAMETERS, 1)
    count = len(depths)
    return DeclineFit(
        cells,
        np.repeat(centre, count),
        np.repeat(width, count),
        np.tile(depths, len(centre)),
        plateau.ravel(),
        baseline.ravel(),
        q.ravel() / phi,
        phi,
        degrees,
    )


def shape_of(fit: DeclineFit) -> Literal["step", "slope", "unclear"]:
    """The best step of the family against the best straight line in log length.

    Deviances (2 x quasi log-likelihood / dispersion) less than 2 apart cannot tell them apart.
    """
    cells = fit.cells
    step = float(fit.q[fit.width == 0].max())
    levels = np.linspace(0.0, 1.0, _LINE_LEVELS)
    first, last = (side.ravel() for side in np.meshgrid(levels, levels, indexing="ij"))
    share = (cells.x - cells.x[0]) / max(float(cells.x[-1] - cells.x[0]), 1e-9)
    mu = np.clip(first[:, None] * (1.0 - share) + last[:, None] * share, MU_FLOOR, 1.0 - MU_FLOOR)
    line = np.log(mu) @ cells.s + np.log1p(-mu) @ (cells.n - cells.s)
    difference = 2.0 * (step - float(line.max()) / fit.dispersion)
    if abs(difference) < _LEAST_DIFFERENCE:
        return "unclear"
    return "step" if difference > 0 else "slope"


def _share_lost(x: Floats, centre: Floats, width: Floats) -> Floats:
    """s((x - c) / w) for members (J) at log lengths (G): (J, G); a step where w = 0."""
    distance = x[None, :] - centre[:, None]
    scaled = distance / np.where(width > 0, width, 1e-9)[:, None]
    return 1.0 / (1.0 + np.exp(-np.clip(scaled, -35.0, 35.0)))


def _places(cells: Cells) -> tuple[Floats, Floats]:
    """Centres and widths of the family."""
    start, end = cells.edges[cells.baseline_cells - 1 :], float(cells.x[-1])
    if not len(start):
        start = cells.edges[-1:]
    span = max(end - float(cells.x[0]), 1e-6)
    centres, widths = [start], [np.zeros(len(start))]
    ranks = np.interp(np.linspace(0, 1, SMOOTH_KNOTS), np.linspace(0, 1, len(start)), start)
    for share in WIDTHS:
        w = share * span
        beyond = np.arange(end, end + 1.5 * w, max(0.5 * w, 1e-9))[1:]
        before = float(start[0]) - w * np.array([1.5, 0.75])
        centres.append(np.concatenate([before, ranks, beyond]))
        widths.append(np.full(len(centres[-1]), w))
    return np.concatenate(centres), np.concatenate(widths)


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
        return _fit(fit.cells, documents, places[:, 0], places[:, 1], depths)

    coarse = np.linspace(0.0, 1.0, _COARSE_DEPTHS)
    first_pass = resolved(coarse)
    left = first_pass.depth[first_pass.deviance <= 3 * first_pass.limit(0.95)]
    least, most = left.min() - coarse[1], left.max() + coarse[1]
    return resolved(np.linspace(max(least, 0.0), min(most, 1.0), _FINE_DEPTHS))


def retained_at(fit: DeclineFit, members: Ints, x: Floats) -> Floats:
    """h of ``members`` (K) at log lengths (P): (K, P)."""
    lost = _share_lost(x, fit.centre[members], fit.width[members])
    return 1.0 - fit.depth[members][:, None] * lost
