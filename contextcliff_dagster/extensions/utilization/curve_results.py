"""What single formats show: their scores, and what both length axes say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.json_form import (
    Count,
    Missing,
    Ratio,
    Score,
    Share,
    Tokens,
    Unit,
)
from contextcliff_dagster.contracts.values import Verdict
from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.formats import Format

Axis = Literal["tokens", "records"]
Length = Annotated[int, Unit("tokens or records, by the axis", 0)]
Scope = Annotated[BenchmarkName | None, "benchmark; null: all of them pooled"]


@dataclass(frozen=True, slots=True)
class AxisPoint:
    """The fitted curve at one length."""

    at: Annotated[Length, "length"]
    mean: Annotated[Score, "fitted mean score"]
    ci_low: Annotated[Score, "lower limit of the mean"]
    ci_high: Annotated[Score, "upper limit of the mean"]


@dataclass(frozen=True, slots=True)
class AxisCap:
    """The longest length up to which a loss is excluded."""

    tolerance: Annotated[Share, "loss relative to the baseline"]
    cap: Annotated[Length | None, "certified cap; null: none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisProfile:
    """What one length axis shows of one format."""

    axis: Annotated[Axis, "what lengths count: tokens of this rendering, or records"]
    verdict: Annotated[Verdict, "what the axis shows"]
    cap: Annotated[Length | None, "certified cap at the result's tolerance; null: none"]
    cap_reason: Annotated[str, "what the cap means, or why there is none"]
    caps: Annotated[Sequence[AxisCap], "at the tolerance, and at 10, 20 and 30%"]
    longest: Annotated[Length | None, "longest length with an answer"]
    baseline: Annotated[Score | None, "mean score of the baseline region"]
    baseline_to: Annotated[Length | None, "longest length of the baseline region"]
    drop_at: Annotated[Length | None, "midpoint of the drop; null: none found"]
    drop_at_low: Annotated[Length | None, "lower limit of the midpoint"]
    drop_at_high: Annotated[Length | None, "upper limit of the midpoint"]
    curve: Annotated[Sequence[AxisPoint], "fitted mean with an interval at each length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleScore:
    """One format at one scale; the interval is over documents."""

    scale: Annotated[str, "label, such as 8k"]
    scale_tokens: Annotated[Tokens, "of the JSON rendering, as planned"]
    tokens: Annotated[Tokens | None, "mean length of this rendering"]
    records: Annotated[Count | None, "mean number of records"]
    n: Annotated[Count, "questions with an answer"]
    n_documents: Annotated[Count, "documents of these questions"]
    missing: Annotated[Count, "planned calls without an answer"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatCurve:
    """One format of one benchmark, or of all: its scores and what both axes show."""

    format: Annotated[Format, "how the records are written"]
    benchmark: Scope
    n: Annotated[Count, "questions with an answer"]
    n_documents: Annotated[Count, "documents of these questions"]
    missing: Annotated[Missing, "planned calls without an answer, by cause"]
    mean: Annotated[Score | None, "mean score over all scales"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    scales: Annotated[Sequence[ScaleScore], "shortest first"]
    tokens: Annotated[AxisProfile | None, "over tokens of this rendering; null: no answer"]
    records: Annotated[AxisProfile | None, "over records; null: no answer or records unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionScore:
    """Scores by where the evidence lies in the document."""

    format: Annotated[Format, "how the records are written"]
    third: Annotated[Literal["first", "middle", "last"], "part of the document"]
    n: Annotated[Count, "questions with an answer"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensPerRecord:
    """How much text a format needs for a record."""

    format: Annotated[Format, "how the records are written"]
    benchmark: Annotated[BenchmarkName, "benchmark"]
    n_documents: Annotated[Count, "documents"]
    mean: Annotated[Ratio, "tokens a record, all documents summed"]
    ratio: Annotated[Ratio | None, "of this mean to that of the first format; null: it has none"]
