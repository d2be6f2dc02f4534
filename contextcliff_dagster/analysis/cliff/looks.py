"""The cap of more data, where caps of fewer were read before.

A cap errs rarely, the longest of several that were read one after another errs more often: of 5,
10, 20 and 50 examples a bin .09 of the longest were unsafe, and .02 of the last. So what goes
beyond every earlier cap takes a chance of loss of a quarter only; up to them the usual one counts.
benchmarks/looks.py has the rates, cliff/cap.py what the chance is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.cliff.cap import Cap
from contextcliff_dagster.analysis.cliff.conclusion import cap_of
from contextcliff_dagster.contracts import level

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results.caps import Look

LOOK_SHARE = 0.25
"""Of the usual chance, for what goes beyond every earlier cap."""


def cap_after_looks(finding: Finding, settings: AnalysisSettings, looks: Sequence[Look]) -> Cap:
    """The cap at the tolerance of ``settings``; ``looks``: the earlier ones, at fewer examples."""
    cap = cap_of(finding, settings)
    if not looks or cap.tokens is None or finding.curve is None:
        return cap
    cells = finding.curve.cells
    strict = cap_of(finding, settings, LOOK_SHARE).tokens or 0
    tokens = max(strict, min(cap.tokens, max(look.safe_cap_tokens or 0 for look in looks)))
    if tokens == cap.tokens:
        return cap
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    before = f"the cap was read {times} before, at fewer examples"
    drop, sure = level(settings.tolerance), level(settings.confidence)
    if tokens <= (baseline_end := int(cells.high[cells.baseline_cells - 1])):
        return Cap(
            None,
            f"Nothing longer than the baseline's own {baseline_end:,} tokens is shown to be safe, "
            f"since {before}; these examples alone would show {cap.tokens:,} tokens. Measure more.",
            baseline_end,
        )
    return Cap(
        tokens,
        f"The score stays within {drop} of its baseline up to {tokens:,} tokens ({sure} "
        f"confidence); {before}, and these examples alone would show {cap.tokens:,} tokens.",
    )


def caps_at(
    finding: Finding,
    tolerances: Sequence[float],
    settings: AnalysisSettings,
    looks: Sequence[Look],
) -> Iterator[tuple[float, Cap]]:
    """The caps of the same fit at other tolerances, the larger the longer."""
    own = cap_after_looks(finding, settings, looks)
    for tolerance in tolerances:
        other = replace(settings, tolerance=tolerance)
        if abs(tolerance - settings.tolerance) < 1e-9:
            yield tolerance, own
            continue
        cap = cap_of(finding, other, LOOK_SHARE if looks else 1.0)
        longer = tolerance > settings.tolerance and (own.tokens or 0) > (cap.tokens or 0)
        yield tolerance, own if longer else cap
