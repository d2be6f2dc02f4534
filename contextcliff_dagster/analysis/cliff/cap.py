"""The safe context cap: the longest length before the tolerance may be lost.

Drops that recover: which of them the scores exclude.

A fitted curve only falls. Where a model may fail over a stretch of lengths and recover beyond it,
nothing but the scores of that very stretch excludes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.curves.falling_process import kept_of
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.contracts import level

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve


LEAST, SHARE = 6, 0.10
"""Examples in a dip, at least so many and this share of them: nothing refutes a shorter one."""
_ABOVE = 0.7
"""Times the normal quantile by which a window's mean must lie above what a dip would leave: less
than 1 holds, since the windows just before and in it, and the falling curve, find a dip as well
(chosen by benchmarks/accept.py)."""
_DEPTHS = np.arange(0.05, 0.96, 0.05)


def first_possible_dip(
    curve: FallingCurve, drop: float, confidence: float, above: float = _ABOVE
) -> int:
    """The first cell at which a dip by ``drop`` may begin; the number of cells: at none.

    Every window of max(6, 10%) of the examples beyond the baseline region is compared with all
    before it: their means m_w and m_b, and the error of m_w - (1 - drop) m_b where a dip has
    happened. A longer dip contains such a window. ``above``: times the normal quantile.
    """
    cells, kept, guessing = curve.cells, 1.0 - drop, curve.documents.chance
    n = np.concatenate([[0.0], np.cumsum(cells.n)])
    s = np.concatenate([[0.0], np.cumsum(cells.s)])
    phi = np.concatenate([[0.0], np.cumsum(cells.n * curve.dispersion)])
    start = np.arange(cells.baseline_cells, len(cells.n))
    end = np.searchsorted(n, n[start] + max(float(LEAST), SHARE * float(n[-1])) - 1e-9)
    start, end = start[end <= len(cells.n)], end[end <= len(cells.n)]
    n_b, s_b, n_w, s_w = n[start], s[start], n[end] - n[start], s[end] - s[start]
    # The mean before such a dip, from both sides of it.
    mean = np.clip((s_b + s_w - drop * guessing * n_w) / (n_b + kept * n_w), 1e-3, 1.0 - 1e-3)
    inside = np.maximum(kept_of(mean, kept, guessing), 1e-4)
    variance = inside * (1.0 - inside) * (phi[end] - phi[start]) / n_w**2
    variance += kept**2 * mean * (1.0 - mean) * phi[start] / n_b**2
    z = (s_w / n_w - kept_of(s_b / n_b, kept, guessing)) / np.sqrt(variance)
    possible = np.flatnonzero(z < above * np.sqrt(chi_square_quantile(confidence)))
    return int(start[possible[0]]) if len(possible) else len(cells.n)


def least_excluded_dip(curve: FallingCurve, tokens: int, confidence: float) -> float | None:
    """The smallest drop, in steps of 5%, that no dip up to ``tokens`` can have; ``None``: any.

    By its window alone; any, too, where none fits between the baseline region and ``tokens``.
    """
    cell = int(np.searchsorted(curve.cells.low, tokens, side="right"))
    size = max(float(LEAST), SHARE * float(curve.cells.n.sum()))
    # A dip that lies wholly below the length begins so many examples before it.
    reached = np.cumsum(curve.cells.n[:cell])
    last = int(np.searchsorted(reached, reached[-1] - size, side="right")) + 1
    if last <= curve.cells.baseline_cells:
        return None
    for depth in _DEPTHS:
        if first_possible_dip(curve, float(depth), confidence, above=1.0) >= last:
            return float(depth)
    return None


DEPTH, CHANCE = 0.85, 0.60
"""A cap ends where a drop of this share of the tolerance has a chance of more than this share of
the error rate: a drop of .255 a chance of .03 at a tolerance of 30% and 95% confidence. Both chosen
by simulation, so that caps keep their promise over all falling curves of benchmarks/accept.py."""
_FEW = 100
"""Fewer examples are allowed less, in proportion: 50 would err in .05 (benchmarks/looks.py)."""


_SMALL = 0.25
"""Smaller tolerances, too, or a drop half as large again as 10% would pass in .14."""


def chance_allowed(tolerance: float, confidence: float, examples: float) -> float:
    """Chance that a drop of `DEPTH` times the tolerance may have at a cap."""
    return CHANCE * (1.0 - confidence) * min(examples / _FEW, 1.0) * min(tolerance / _SMALL, 1.0)


def tail_confidence(confidence: float, share: float = 1.0) -> float:
    """Confidence at which the longest answers have to refute a loss by themselves (`Tail`).

    Twice the error rate: over late drops and outlying documents of benchmarks/accept.py caps were
    unsafe in .05 at most that way, and flat curves covered as far as they can be.
    """
    return 1.0 - 2.0 * share * (1.0 - confidence)


@dataclass(frozen=True, slots=True)
class Cap:
    """``tokens`` of the document, ``None`` where no length can be called safe; and why.

    ``baseline_tokens``: the end of the baseline region where nothing longer is shown.
    """

    tokens: int | None
    reason: str
    baseline_tokens: int | None = None


def certified_cap(
    curve: FallingCurve,
    tolerance: float,
    confidence: float,
    before: int | None = None,
    *,
    may_recover: bool = False,
    share: float = 1.0,
) -> Cap:
    """The longest length before ``tolerance`` may be lost.

    It never exceeds the longest scored length, and one that would not leave the baseline region is
    none. The larger the tolerance or the lower the confidence, the longer.

    Args:
        before: another bound, exclusive (the start of a dip), tokens.
        may_recover: whether it is to hold for a model that fails at a length and recovers, too.
        share: of the chance that a loss may have (`CHANCE`).
    """
    cells = curve.cells
    baseline_end, longest = int(cells.high[cells.baseline_cells - 1]), int(cells.high[-1])
    drop, sure = level(tolerance), level(confidence)
    chance = share * chance_allowed(tolerance, confidence, float(cells.n.sum()))
    first = curve.first_cell(DEPTH * tolerance, chance)
    if may_recover:
        first = min(first, first_possible_dip(curve, tolerance, confidence))
    tokens = int(cells.high[first - 1])
    if before is not None:
        tokens = min(tokens, before - 1)
    supported = curve.supported(tolerance, tail_confidence(confidence, share))
    alone = supported is not None and supported < tokens
    if supported is not None:
        tokens = min(tokens, supported)
    if tokens <= baseline_end:
        return Cap(
            None,
            f"Nothing longer than the baseline's own {baseline_end:,} tokens is shown to be safe: "
            f"right after them the score may drop by {drop}. Measure more, and shorter documents.",
            baseline_end,
        )
    if tokens >= longest:
        return Cap(
            longest,
            f"The score stays within {drop} of its baseline up to {longest:,} tokens, the longest "
            f"length scored ({sure} confidence).",
        )
    beyond = "beyond that there are too few answers to tell" if alone else "it may drop right after"
    return Cap(
        tokens,
        f"The score stays within {drop} of its baseline up to {tokens:,} tokens ({sure} "
        f"confidence); {beyond}.",
    )
