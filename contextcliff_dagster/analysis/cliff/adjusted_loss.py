"""Both sides of a loss, and whether what remains of it, all else equal, is still one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.cliff.verdict import ALARM_SHARE
from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.curves.falling_curve import Estimate
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Ints

_UNSEEN = 1 / 3
"""Of the examples, the longest, that are compared at least where no drop is seen."""
LEAST_REMAINING = 0.5
"""Share of the loss as measured that must remain, all else equal."""
CHOSEN = (SPLIT_LIMIT / 3.84) ** 0.5
"""Times its interval's reach that what remains must lie above 0: the place was chosen where the
loss looks largest, also by the luck of the examples within a category."""


@dataclass(frozen=True, slots=True)
class DropWindow:
    """Where the loss lies, tokens, half-open; ``to_tokens`` is ``None``: to the end."""

    from_tokens: int
    to_tokens: int | None

    def of(self, lengths: Ints) -> Bools:
        """Which of the lengths lie in it."""
        end = np.inf if self.to_tokens is None else self.to_tokens
        return (lengths >= self.from_tokens) & (lengths < end)

    @property
    def words(self) -> str:
        if self.to_tokens is None:
            return f"from {self.from_tokens:,} tokens on"
        return f"between {self.from_tokens:,} and {self.to_tokens:,} tokens"


def drop_window(finding: Finding, lengths: Ints) -> DropWindow | None:
    """Return where the loss found lies, else where one is likeliest and both sides are large."""
    if finding.scan is None or finding.verdict is Verdict.FLOOR:
        return None
    if finding.verdict is Verdict.DIP:
        return DropWindow(*finding.degraded)
    start = finding.scan.step.first_tokens
    if finding.cliff is not None:
        start = round(finding.cliff.location.value)
    elif not finding.visible:
        start = min(start, int(np.quantile(lengths, 1.0 - _UNSEEN)))
    window = DropWindow(start, None)
    return window if 0 < window.of(lengths).sum() < len(lengths) else None


@dataclass(frozen=True, slots=True)
class AdjustedDrop:
    """The drop all else equal, and as measured.

    ``strength``: how many times its interval's reach ``drop`` lies above 0. ``other``: the cause of
    the drop if it is not length; ``hidden``: what would hide one.
    """

    drop: Estimate
    strength: float
    measured: float
    other: str
    hidden: str


def judge_adjusted_drop(
    head: str, adjusted: AdjustedDrop, finding: Finding, settings: AnalysisSettings
) -> tuple[Literal["yes", "no"], str]:
    """Whether the drop is due to length, and the reason as a sentence that begins with ``head``."""
    drop, measured = adjusted.drop.value, adjusted.measured
    if not finding.visible:
        if abs(drop - measured) >= ALARM_SHARE * settings.tolerance:
            return "no", f"{head}: {adjusted.hidden} hides the effect of length."
    elif drop < LEAST_REMAINING * measured:
        return "no", f"{head}: most of the drop comes from {adjusted.other}."
    elif adjusted.strength <= CHOSEN:
        return "no", f"{head}: too few examples to attribute any of the drop to length."
    return "yes", f"{head}."


def percent(share: float) -> str:
    return f"{share:.0%}".replace("-0%", "0%")
