"""The cap that is read from the fitted falling curve: steps, ramps, stairs and smooth decay alike.

Not in reports yet: benchmarks/falling_caps.py compares it with `cap`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.falling_curve import FallingCurve

DEPTH, CHANCE = 0.80, 0.60
"""A cap ends where a drop of this share of the tolerance has a chance of more than this share of
the error rate: a drop of .24 a chance of .03 at a tolerance of 30% and 95% confidence. Both chosen
by simulation (benchmarks/falling_caps.py)."""


def falling_cap(
    curve: FallingCurve, tolerance: float, confidence: float, before: int | None = None
) -> int | None:
    """The longest length (tokens) before ``tolerance`` may be lost.

    It never exceeds the longest scored length, and one that would not leave the baseline region is
    None. The larger the tolerance or the lower the confidence, the longer.

    Args:
        before: another bound, exclusive (the start of a dip), tokens.
    """
    cells = curve.cells
    first = curve.first_cell(DEPTH * tolerance, CHANCE * (1.0 - confidence))
    tokens = int(cells.high[first - 1])
    if before is not None:
        tokens = min(tokens, before - 1)
    return tokens if tokens > int(cells.high[cells.baseline_cells - 1]) else None
