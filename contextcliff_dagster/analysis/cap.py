"""The safe context cap: the longest length before any loss the data cannot refute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.intervals import deviance_quantile
from contextcliff_dagster.analysis.monotone import loss_deviance

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.decline import Cells

STRICTNESS = 1.4
"""Times the quantile that refutes a loss: a deviance of 5.4 at 95%. At the plain
quantile 2-3% of caps on curves with a shelf lie beyond the truth, at this one less than 1%
(benchmarks/caps_simulated.py)."""


@dataclass(frozen=True, slots=True)
class Cap:
    """``tokens`` of the document, ``None`` where no length can be called safe; and why."""

    tokens: int | None
    reason: str


def certified_cap(
    cells: Cells,
    dispersion: float,
    tolerance: float,
    confidence: float,
    before: int | None = None,
    degrees: int | None = None,
) -> Cap:
    """The largest length up to which a loss of ``tolerance`` has been refuted.

    A loss that begins at a cell is refuted where its deviance (``monotone``) exceeds
    ``STRICTNESS`` x the quantile. The cap is the last length before the first that is not; a cell
    of several lengths may hold the beginning itself and is left out. A cap never exceeds the
    longest scored length, and one that would not leave the baseline region is none.

    Args:
        dispersion: of the scores, as fitted by ``decline``.
        before: another bound, exclusive (the start of a dip), tokens.
        degrees: of freedom of an estimated dispersion; ``None``: it is known.
    """
    k = cells.baseline_cells
    baseline_end, longest = int(cells.high[k - 1]), int(cells.high[-1])
    loss, sure = f"{tolerance:.0%}", f"{confidence:.0%}"
    deviance = loss_deviance(cells, tolerance, dispersion)
    possible = np.flatnonzero(deviance <= STRICTNESS * deviance_quantile(confidence, degrees))
    tokens = longest
    if len(possible):
        last = k + int(possible[0]) - 1
        if last >= k and cells.low[last] < cells.high[last]:
            last -= 1
        tokens = int(cells.high[last])
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
