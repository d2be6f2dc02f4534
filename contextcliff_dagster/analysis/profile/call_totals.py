"""What calls add up to: tokens, money and time, over all of them and by bin."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts.results.fields import BinResult
from contextcliff_dagster.contracts.results.metrics import BinMetrics, ExcessByKind, Totals

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample

_SUMMED = (
    "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd",
    "duration_ms",
)  # fmt: skip
_SCORES = ("em", "f1", "contained")


def totals_of(calls: pd.DataFrame) -> Totals:
    """Sums over all calls; null where no record carries the column."""
    return Totals(
        prompt_tokens=_tokens(calls["prompt_tokens"]),
        cached_tokens=_tokens(calls["cached_tokens"]),
        completion_tokens=_tokens(calls["completion_tokens"]),
        reasoning_tokens=_tokens(calls["reasoning_tokens"]),
        cost_usd=_sum(calls["cost_usd"]),
        duration_ms=_sum(calls["duration_ms"]),
    )


def bin_metrics(row: BinResult, excess: ExcessByKind, index: int, sample: Sample) -> BinMetrics:
    """A bin's row with the means of all three scores and what its calls cost."""
    calls = sample.calls.loc[sample.calls["bin_index"] == index, [*_SUMMED]]
    examples = sample.examples.loc[sample.examples["bin_index"] == index, [*_SCORES]]
    totals = totals_of(calls)
    return BinMetrics(
        **{one.name: getattr(row, one.name) for one in fields(BinResult)},
        calls=len(calls),
        em=_mean(examples["em"]),
        f1=_mean(examples["f1"]),
        contained=_mean(examples["contained"]),
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        completion_tokens=totals.completion_tokens,
        reasoning_tokens=totals.reasoning_tokens,
        cost_usd=totals.cost_usd,
        latency_excess=excess,
    )


def _sum(column: pd.Series[Any]) -> float | None:
    known = column.dropna()
    return float(known.sum()) if len(known) else None


def _tokens(column: pd.Series[Any]) -> int | None:
    known = column.dropna()
    return int(known.sum()) if len(known) else None


def _mean(column: pd.Series[Any]) -> float | None:
    known = column.dropna()
    return float(known.mean()) if len(known) else None
