"""The safe context cap: the longest length before the tolerance may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.cliff.dips import first_possible_dip
from contextcliff_dagster.contracts import level

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve

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
