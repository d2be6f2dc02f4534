"""``metrics.json``, one file per model: statistics per length bin, without a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.cliffs import OptionalVarianceSignal, SlowdownByKind
from contextcliff_dagster.contracts.results.json_form import (
    BinResult,
    Count,
    Delay,
    Dollars,
    Milliseconds,
    Relative,
    ResultHead,
    Score,
    Spread,
    Tokens,
)
from contextcliff_dagster.contracts.results.questions import Category, OptionalMix

CATEGORY_WORDS: dict[Category, str] = {
    "task": "tasks",
    "kind": "kinds of question",
    "level": "levels",
    "domain": "domains",
    "source": "sources",
    "evidence_position": "evidence positions",
}
"""Plural noun for the values of each category, for sentences."""


ReasoningTokens = Annotated[Tokens | None, "of these, spent on reasoning; absent in older files"]


@dataclass(frozen=True, slots=True)
class PrimaryScoreName:
    """The score that the statistics are of."""

    name: Annotated[str, "em, f1, contained, or a scorer's own"]
    primary: Annotated[str | None, "which of em, f1, contained it is"]
    scale: Annotated[Literal[1], "largest score"]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of the model."""

    planned: Annotated[Count, "calls"]
    scored: Annotated[Count, "with an answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over calls; null where no record carries the number."""

    prompt_tokens: Annotated[Tokens | None, "by the server's count"]
    cached_tokens: Annotated[Tokens | None, "of these, from a cache"]
    completion_tokens: Annotated[Tokens | None, "generated"]
    reasoning_tokens: ReasoningTokens = None
    cost_usd: Annotated[Dollars | None, "price"]
    duration_ms: Annotated[Milliseconds | None, "time to the last token"]


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """Time = base_ms + ms_per_1k K + ms_per_1k_squared K^2, K = length in 1,000 tokens."""

    base_ms: Annotated[Milliseconds, "at length 0"]
    ms_per_1k: Annotated[Milliseconds, "per 1,000 tokens"]
    ms_per_1k_squared: Annotated[Milliseconds, "per 1,000 tokens squared"]


@dataclass(frozen=True, slots=True)
class ExcludedCalls:
    """Calls that the law is not fitted to, by the first reason that fits."""

    cached: Annotated[Count, "prompt from a cache"]
    queued: Annotated[Count, "waited in the engine"]
    own_queue: Annotated[Count, "waited for our own event loop"]


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of time against length."""

    law: Annotated[LengthLaw | None, "null: too few calls or lengths"]
    calls: Annotated[Count, "calls that the law is fitted to"]
    excluded: Annotated[ExcludedCalls, "calls left out"]


@dataclass(frozen=True, slots=True)
class LatencyByKind:
    """Times of usable calls against the length of their documents; null: none measured."""

    ttft: Annotated[Latency | None, "time to the first token"]
    duration: Annotated[Latency | None, "time to the last token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """By how much the times of a bin's calls exceed what their lengths explain."""

    n: Annotated[Count, "calls"]
    median: Annotated[Relative, "median of the calls"]
    ci_low: Annotated[Relative | None, "lower limit of the median at 95%"]
    ci_high: Annotated[Relative | None, "upper limit of the median at 95%"]
    iqr: Annotated[Spread, "interquartile range of the calls"]
    median_ms: Annotated[Delay | None, "median in ms; null in older files"] = None


@dataclass(frozen=True, slots=True)
class ExcessByKind:
    """The excess by kind of time; null: no usable call."""

    ttft: Annotated[Excess | None, "time to the first token"]
    duration: Annotated[Excess | None, "time to the last token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinMetrics(BinResult):
    """One length bin with all three scores and what its calls cost."""

    calls: Annotated[Count, "planned calls"]
    em: Annotated[Score | None, "mean exact match"]
    f1: Annotated[Score | None, "mean token F1"]
    contained: Annotated[Score | None, "mean containment"]
    prompt_tokens: Annotated[Tokens | None, "by the server's count"]
    cached_tokens: Annotated[Tokens | None, "of these, from a cache"]
    completion_tokens: Annotated[Tokens | None, "generated"]
    reasoning_tokens: ReasoningTokens = None
    cost_usd: Annotated[Dollars | None, "price"]
    latency_excess: Annotated[
        ExcessByKind | None, "latency not explained by length; absent in older files"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(ResultHead):
    """Statistics per length bin without a judgement. Units as in cliffs.schema.json."""

    score: Annotated[PrimaryScoreName, "the primary score"]
    calls: Annotated[Calls, "calls of the model"]
    totals: Annotated[Totals, "over all calls"]
    latency: Annotated[LatencyByKind | None, "latency by length; absent in older files"] = None
    variance_signal: OptionalVarianceSignal = None
    mix: OptionalMix = ()
    slowdown: Annotated[SlowdownByKind | None, "tests for a slowdown; absent in older files"] = None
    bins: Annotated[Sequence[BinMetrics], "by length"]
    warnings: Annotated[Sequence[str], "sentences"]
