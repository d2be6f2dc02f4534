"""What calls add up to: tokens, money and time, over all of them and by bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample

_SUMMED = (
    "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd",
    "duration_ms",
)  # fmt: skip
_SCORES = ("em", "f1", "contained")


def totals_of(calls: pd.DataFrame) -> dict[str, float | int | None]:
    """Sums over all calls; null where no record carries the column."""
    totals: dict[str, float | int | None] = {}
    for name in _SUMMED[:4]:
        known = calls[name].dropna()
        totals[name] = int(known.sum()) if len(known) else None
    for name in _SUMMED[4:]:
        known = calls[name].dropna()
        totals[name] = float(known.sum()) if len(known) else None
    return totals


def with_scores(row: dict[str, Any], index: int, sample: Sample) -> dict[str, Any]:
    """A bin's row with the means of all three scores and what its calls cost."""
    calls = sample.calls.loc[sample.calls["bin_index"] == index, [*_SUMMED]]
    examples = sample.examples.loc[sample.examples["bin_index"] == index, [*_SCORES]]
    more: dict[str, Any] = {"calls": len(calls)}
    for name in _SCORES:
        known = examples[name].dropna()
        more[name] = float(known.mean()) if len(known) else None
    return {**row, **more, **{k: v for k, v in totals_of(calls).items() if k != "duration_ms"}}
