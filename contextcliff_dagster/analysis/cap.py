"""The safe context cap: the longest length before any loss the data cannot refute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.decline import refutation_limit

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.decline import DeclineFit


@dataclass(frozen=True, slots=True)
class Cap:
    """``tokens`` of the document, ``None`` where no length can be called safe; and why."""

    tokens: int | None
    reason: str


def certified_cap(
    fit: DeclineFit,
    tolerance: float,
    confidence: float,
    ends: tuple[int, int],
    before: int | None = None,
) -> Cap:
    """The largest length up to which a loss of ``tolerance`` has been refuted.

    Every member of the family that has lost ``tolerance`` of its baseline at some length must be
    refuted (deviance above ``refutation_limit``), or that length bounds the cap. A step is read as
    the last length *before* the cell it stands in; a cap never exceeds the longest scored length,
    and one that would not leave the baseline region is none.

    Args:
        ends: end of the baseline region and longest scored length, tokens.
        before: another bound, exclusive (the start of a dip), tokens.
    """
    baseline_end, longest = ends
    loss, sure = f"{tolerance:.0%}", f"{confidence:.0%}"
    cells = fit.cells
    possible = fit.deviance <= refutation_limit(confidence)
    crossing = fit.crossing(tolerance)
    step = possible & (fit.width == 0) & np.isfinite(crossing)
    tokens = longest
    if step.any():
        # The cell in which the earliest step stands; its own documents may lie on both sides.
        cell = int(np.searchsorted(cells.edges, crossing[step].min() - 1e-9, side="right"))
        if cells.low[cell] < cells.high[cell]:
            cell -= 1
        tokens = min(tokens, int(cells.high[cell]) if cell >= 0 else 0)
    ramp = crossing[possible & (fit.width > 0)].min(initial=np.inf)
    if np.isfinite(ramp) and ramp < np.log(longest):
        tokens = min(tokens, int(np.exp(ramp)))
    if before is not None:
        tokens = min(tokens, before - 1)
    if tokens <= baseline_end:
        return Cap(
            None,
            f"A loss of {loss} right after the baseline region (up to {baseline_end:,} tokens) "
            f"cannot be excluded at {sure} confidence: no longer length is shown to be safe; "
            "measure more examples or shorter ones.",
        )
    if tokens >= longest:
        return Cap(
            longest,
            f"A loss of {loss} is excluded at {sure} confidence up to {longest:,} tokens, the "
            "longest length scored; nothing longer was measured.",
        )
    return Cap(
        tokens,
        f"Up to {tokens:,} tokens a loss of {loss} is excluded at {sure} confidence; beyond it the "
        "data allow one.",
    )
