"""Both sides of a loss, and whether what remains of it, all else equal, is still one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.cliff.verdict import ALARM_SHARE
from contextcliff_dagster.analysis.curves.permutation_scan import SPLIT_LIMIT
from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.curves.fitted_curve import Estimate
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

    Ints = NDArray[np.int64]

LEAST_REMAINING = 0.5
"""Share of the loss as measured that must remain, all else equal."""
CHOSEN = (SPLIT_LIMIT / 3.84) ** 0.5
"""Times its interval's reach that what remains must lie above 0: the place was chosen where the
loss looks largest, also by the luck of the examples within a category."""
MOST_CHANGED = ALARM_SHARE
"""Tolerances by which a drop may differ, all else equal, where no loss was found."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Where the loss lies, tokens, half-open; ``to_tokens`` is ``None``: to the end."""

    from_tokens: int
    to_tokens: int | None

    def of(self, lengths: Ints) -> NDArray[np.bool_]:
        """Which of the lengths lie in it."""
        end = np.inf if self.to_tokens is None else self.to_tokens
        return (lengths >= self.from_tokens) & (lengths < end)

    @property
    def words(self) -> str:
        if self.to_tokens is None:
            return f"from {self.from_tokens:,} tokens on"
        return f"between {self.from_tokens:,} and {self.to_tokens:,} tokens"


def beyond_of(finding: Finding, lengths: Ints) -> Beyond | None:
    """Where the loss found lies, else the likeliest place of one."""
    if finding.evidence is None or finding.verdict is Verdict.FLOOR:
        return None
    if finding.verdict is Verdict.DIP:
        return Beyond(*finding.degraded)
    start = finding.evidence.scan.step.first_tokens
    if finding.cliff is not None:
        start = round(finding.cliff.location.value)
    found = Beyond(start, None)
    return found if 0 < found.of(lengths).sum() < len(lengths) else None


def judged(
    head: str,
    other: str,
    hidden: str,
    drop: Estimate,
    strength: float,
    measured: float,
    finding: Finding,
    settings: AnalysisSettings,
) -> tuple[Literal["yes", "no"], str]:
    """Whether the loss is the length's, ``yes`` or ``no``, and the reason as a sentence.

    Args:
        head: what was found, a clause.
        other: whose the loss would be instead; ``hidden``: what hides a loss.
        drop: what remains all else equal; ``strength``: how many times its reach that is.
        measured: the drop as measured.
    """
    if not finding.visible:
        if abs(drop.value - measured) >= MOST_CHANGED * settings.tolerance:
            return "no", f"{head}: {hidden} hides the effect of length."
        return "yes", f"{head}."
    if drop.value < LEAST_REMAINING * measured:
        return "no", f"{head}: most of the drop comes from {other}."
    if strength <= CHOSEN:
        return "no", f"{head}: too few examples to attribute any of the drop to length."
    return "yes", f"{head}."


def percent(share: float) -> str:
    return f"{share:.0%}".replace("-0%", "0%")
