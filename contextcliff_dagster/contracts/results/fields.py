"""Units and limits of the fields of results, and what every result file begins with.

A field is declared once: ``ci_low: Annotated[Score | None, "lower limit of the mean"]``. The string
is its description, the alias its unit and limits; the JSON Schemas are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


def nulls(model: type[R], **given: Any) -> R:
    """A result with null in every field that is not ``given``."""
    return model(**(dict.fromkeys(field.name for field in fields(model)) | given))


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit and limits of a number, or the format of a text; ``None`` where there is none."""

    name: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    format: str | None = None


Count = Annotated[int, Unit("count", 0)]
Tokens = Annotated[int, Unit("tokens", 0)]
Score = Annotated[float, Unit("score", 0, 1)]
Share = Annotated[float, Unit("share", 0, 1)]
Probability = Annotated[float, Unit("probability", 0, 1)]
Relative = Annotated[float, Unit("share")]
Ratio = Annotated[float, Unit("ratio")]
Spread = Annotated[float, Unit("share", 0)]
Milliseconds = Annotated[float, Unit("ms", 0)]
Delay = Annotated[float, Unit("ms")]
"""A difference of two times; below 0 where the first is shorter."""
Dollars = Annotated[float, Unit("USD", 0)]
Moment = Annotated[str, Unit("UTC", format="date-time")]

Identified = Literal["yes", "no", "not_assessed"]


class Provenance(TypedDict):
    """What it takes to measure the same again; open, so that callers can add to it."""

    hashes: Annotated[Mapping[str, str | None], "SHA-256 of manifest, recipe, files"]
    file: NotRequired[Annotated[str, "names of the files that the scores come from"]]
    identity: NotRequired[Annotated[Mapping[str, Any], "fields of the serving identity"]]
    seeds: Annotated[Mapping[str, Any], "seeds of sampling and analysis"]
    versions: Annotated[Mapping[str, str | None], "versions of the programs and libraries"]
    origins: NotRequired[Annotated[Mapping[str, int], "archive -> answers that come from it"]]
    times: Annotated[Mapping[str, str | None], "when the first and the last call were answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Planned calls without an answer, outside every mean."""

    context_overflow: Annotated[Count, "longer than the model accepts: never sent"]
    invalid_truncated: Annotated[Count, "the server saw fewer tokens than were sent"]
    transport_error: Annotated[Count, "no answer after all attempts"]
    content_filter: Annotated[Count, "withheld by the serving's content filter"] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHead:
    """What the results of a model begin with."""

    schema_version: Annotated[Literal["1.0", "1.1"], "of this file's format"]
    created_at: Annotated[Moment, "time of the analysis"]
    study: Annotated[str | None, "study"]
    model: Annotated[str, "serving configuration"]
    campaign: Annotated[str | None, "dated measurement of the study"]
    task: Annotated[str | None, "kind of question"]
    tokenizer: Annotated[str | None, "counts length_tokens"]
    identity: Annotated[str | None, "hash of the serving identity"]
    window_tokens: Annotated[Tokens | None, "technical window of the model, its own tokens"]
    length_unit: Annotated[Literal["document"], "what the lengths are of"]
    n: Annotated[Count, "examples with an answer; replicates averaged"]
    n_documents: Annotated[Count | None, "documents of these examples"]
    missing: Annotated[Missing, "planned calls without an answer: outside every mean"]
    missing_share: Annotated[Share, "of the planned calls"]
    provenance: Provenance
    method_version: Annotated[str | None, "of verdict and cap; null in older files: 1"] = None
    scorer_version: Annotated[
        str | None, "of the scorers; null: scored elsewhere, or 1 in older files"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentHead:
    """What the result of an experiment begins with, one a model."""

    schema_version: Annotated[Literal["1.0"], "of this file's format"]
    created_at: Annotated[Moment | None, "time of the analysis; null: not given"]
    study: Annotated[str | None, "study"]
    campaign: Annotated[str | None, "dated measurement of the study"]
    model: Annotated[str, "serving configuration"]
    confidence: Annotated[Share, "of tests and intervals"]
    seed: Annotated[Count, "of every resampling"]
    headline: Annotated[Sequence[str], "the result in a few sentences"]
    warnings: Annotated[Sequence[str], "sentences"]


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a bin's calls."""

    p50: Annotated[Milliseconds, "median"]
    p95: Annotated[Milliseconds, "95th percentile"]
    sd: Annotated[Milliseconds, "standard deviation (population)"]


@dataclass(frozen=True, slots=True)
class MeanScore:
    """Mean score of some examples, its interval over documents; null without any."""

    n: Annotated[Count, "examples"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True)
class BinMean:
    """The same in one length bin."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Count, "examples"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinResult:
    """One length bin: its scores, failures and times; null below the examples that each needs."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Count, "examples with an answer; replicates averaged"]
    n_documents: Annotated[Count | None, "documents of these examples"]
    edge_low: Annotated[Tokens, "first length of the bin"]
    edge_high: Annotated[Tokens, "first length after the bin; the last bin is closed"]
    min_tokens: Annotated[Tokens | None, "shortest length scored"]
    median_tokens: Annotated[Tokens | None, "median length scored"]
    max_tokens: Annotated[Tokens | None, "longest length scored"]
    mean: Annotated[Score | None, "mean score of the examples"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    sd: Annotated[Score | None, "standard deviation of the examples' scores (population)"]
    variance: Annotated[Share | None, "variance of the examples' scores (population)"]
    failure_rate: Annotated[Share | None, "of the examples"]
    failures: Annotated[Mapping[str, Count] | None, "answered calls by failure tag"]
    missing: Annotated[Count, "planned calls without an answer"]
    ci_width: Annotated[Score | None, "width of the mean's interval"]
    rolling_variance: Annotated[Share | None, "variance over neighbouring bins"]
    bimodality: Annotated[Spread | None, "Sarle's coefficient; above 5/9 suggests two modes"]
    instability: Annotated[Score | None, "mean SD between the replicates of an example"]
    ttft_excess: Annotated[Relative | None, "median share of the TTFT that length does not explain"]
    ttft_ms: Annotated[Times | None, "time to the first token"]
    duration_ms: Annotated[Times | None, "time to the last token"]
    delivered_mean: Annotated[
        Score | None, "mean score if each missing answer scores 0; null: none is, or older files"
    ] = None
