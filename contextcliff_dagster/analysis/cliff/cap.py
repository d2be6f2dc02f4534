"""The safe context cap: the longest length before any loss the data cannot refute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.curves.loss_onset import earliest_loss

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.curves.loss_family import Losses


@dataclass(frozen=True, slots=True)
class Cap:
    """``tokens`` of the document, ``None`` where no length can be called safe; and why."""

    tokens: int | None
    reason: str


def certified_cap(
    losses: Losses, tolerance: float, confidence: float, before: int | None = None
) -> Cap:
    """The largest length up to which a loss of ``tolerance`` has been refuted.

    The last length before the first at which some loss is possible (`places.earliest_loss`). A cap
    never exceeds the longest scored length, and one that would not leave the baseline region is
    none.

    Args:
        losses: fitted with this ``tolerance``.
        before: another bound, exclusive (the start of a dip), tokens.
    """
    cells = losses.cells
    baseline_end = int(cells.high[cells.baseline_cells - 1])
    longest = int(cells.high[-1])
    drop, sure = f"{tolerance:.0%}", f"{confidence:.0%}"
    first = earliest_loss(losses, tolerance, confidence)
    tokens = int(cells.high[first - 1]) if first else 0
    if before is not None:
        tokens = min(tokens, before - 1)
    if tokens <= baseline_end:
        return Cap(
            None,
            f"A drop of {drop} right after the baseline region (up to {baseline_end:,} tokens) "
            f"cannot be excluded at {sure} confidence, so no longer length is known to be safe; "
            "measure more examples or shorter ones.",
        )
    if tokens >= longest:
        return Cap(
            longest,
            f"A drop of {drop} is excluded at {sure} confidence up to {longest:,} tokens, the "
            "longest length scored; nothing longer was measured.",
        )
    return Cap(
        tokens,
        f"Up to {tokens:,} tokens, a drop of {drop} is excluded at {sure} confidence; beyond that, "
        "it is not.",
    )
