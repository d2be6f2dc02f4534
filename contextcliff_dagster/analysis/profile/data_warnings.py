"""What in the data of a profile limits its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.cap import Cap
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.contracts.results.fields import BinResult

_MISSING_WORTH_A_WARNING = 0.05


def data_warnings(
    sample: Sample, rows: list[BinResult], finding: Finding, cap: Cap, context: ProfileContext
) -> list[str]:
    """Return a sentence for each."""
    warnings = []
    calls = sample.calls
    unanswered = int((~calls["answered"]).sum())
    if len(calls) and unanswered / len(calls) > _MISSING_WORTH_A_WARNING:
        warnings.append(
            f"{unanswered} of {len(calls)} planned calls have no answer "
            f"({unanswered / len(calls):.0%}): the result uses the others."
        )
    empty = [row.bin for row in rows if row.n == 0]
    if empty:
        warnings.append(f"No answer was scored in {', '.join(empty)}.")
    if finding.verdict is Verdict.STABLE and cap.tokens is None:
        warnings.append(
            "No drop is visible, but there are too few examples to call any length safe."
        )
    first = next((row for row in rows if row.sd is not None), None)
    if first and first.sd == 0 and len(rows) > 1:
        warnings.append(
            f"All scores of {first.bin} are equal: against a baseline SD of 0 any spread fires "
            "the SD and variance rules."
        )
    if context.window_tokens and len(sample.examples):
        longest = int(sample.examples["length_tokens"].max())
        if longest < 0.5 * context.window_tokens:
            warnings.append(
                f"The longest scored document has {longest:,} tokens, "
                f"{longest / context.window_tokens:.0%} of the window: nothing was measured beyond."
            )
    return warnings
