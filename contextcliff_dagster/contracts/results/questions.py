"""Results on the questions: their mix, evidence, levels and controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.json_form import (
    BinMean,
    Count,
    Identified,
    MeanScore,
    Probability,
    Relative,
    Score,
    Share,
    Spread,
    Tokens,
)
from contextcliff_dagster.contracts.values import Verdict

Category = Literal["task", "kind", "level", "domain", "source", "evidence_position"]


EvidenceAxis = Literal["evidence_position", "inter_evidence_tokens"]


Control = Literal["no_context", "oracle"]


@dataclass(frozen=True, slots=True)
class Confounds:
    """Whether a loss, or its absence, is that of length."""

    identified: Annotated[Identified, "whether length is separated from other causes"]
    reasons: Annotated[Sequence[str], "sentences"]


@dataclass(frozen=True, slots=True)
class MixBin:
    """One length bin at the equal mix of a category."""

    bin: Annotated[str, "length bin"]
    n: Annotated[Sequence[Count], "examples by value"]
    mean: Annotated[Score | None, "mean score as measured"]
    standardised: Annotated[Score | None, "mean at the mix shares; null where covered is below .5"]
    ci_low: Annotated[Score | None, "lower limit of the standardised mean"]
    ci_high: Annotated[Score | None, "upper limit of the standardised mean"]
    covered: Annotated[Share, "of shares: values with 2 documents in the bin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryMix:
    """The loss at an equal mix of one category of the questions."""

    category: Annotated[Category, "what the questions are grouped by"]
    identified: Annotated[Identified, "whether length is separated from the category"]
    from_tokens: Annotated[Tokens | None, "first length of those compared with the others"]
    to_tokens: Annotated[Tokens | None, "null: to the longest"]
    drop: Annotated[Relative | None, "relative, at an equal mix"]
    drop_ci_low: Annotated[Relative | None, "lower limit of the drop"]
    drop_ci_high: Annotated[Relative | None, "upper limit of the drop"]
    drop_as_measured: Annotated[Relative | None, "relative, without the mix held equal"]
    values: Annotated[Sequence[str], "of the category"]
    shares: Annotated[Sequence[Share], "the equal mix, by value"]
    bins: Annotated[Sequence[MixBin], "by length bin"]


OptionalMix = Annotated[Sequence[CategoryMix], "by category of questions; absent in older files"]


@dataclass(frozen=True, slots=True)
class EvidenceGroup:
    """Examples whose evidence has one range of positions or distances."""

    low: Annotated[Spread, "of the position or distance; half-open, the last closed"]
    high: Annotated[Spread, "of the position or distance"]
    n: Annotated[Count, "examples"]
    n_documents: Annotated[Count, "documents"]
    mean: Annotated[Score | None, "null below 8 examples"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    at_equal_length: Annotated[
        Score | None, "mean at the common mix of length bins; null where it covers less than half"
    ]
    at_equal_length_low: Annotated[Score | None, "lower limit of that mean"]
    at_equal_length_high: Annotated[Score | None, "upper limit of that mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCurve:
    """The score against a property of the evidence."""

    axis: Annotated[EvidenceAxis, "the property"]
    n: Annotated[Count, "examples that carry it"]
    n_all: Annotated[Count, "examples"]
    groups: Annotated[Sequence[EvidenceGroup], "in order"]
    p_value: Annotated[Probability | None, "of a flat curve at equal length; null: not tested"]
    group: Annotated[Count | None, "number of the group that differs most"]
    difference: Annotated[Relative | None, "of its mean from all others' at equal length"]
    difference_low: Annotated[Relative | None, "lower limit of the difference"]
    difference_high: Annotated[Relative | None, "upper limit of the difference"]
    refused_because: Annotated[str | None, "why there is no test, a clause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """Verdict and cap of one kind of level, as if the others had not been asked."""

    name: Annotated[str, "simple (level 1), complex (2 and more), or the level's own name"]
    levels: Annotated[Sequence[str], "levels of this kind"]
    n: Annotated[Count, "examples"]
    n_documents: Annotated[Count, "documents"]
    verdict: Annotated[Verdict, "what the length axis shows"]
    safe_cap_tokens: Annotated[Tokens | None, "certified cap"]
    safe_cap_reason: Annotated[str, "what the cap means, or why there is none"]
    baseline: Annotated[Score | None, "mean score of the baseline region"]
    location_tokens: Annotated[Tokens | None, "midpoint of the drop"]
    ci_low: Annotated[Tokens | None, "lower limit of the location"]
    ci_high: Annotated[Tokens | None, "upper limit of the location"]
    bins: Annotated[Sequence[BinMean], "by length bin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """The same questions without the document, or over its evidence alone."""

    name: Annotated[Control, "which control"]
    n: Annotated[Count, "examples with an answer in the control"]
    n_askable: Annotated[Count, "examples that it can ask"]
    n_all: Annotated[Count, "examples with an answer in the measurement"]
    missing: Annotated[Count, "calls without an answer"]
    mean: Annotated[Score | None, "mean score in the control"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]
    before: Annotated[MeanScore | None, "before the loss"]
    beyond: Annotated[MeanScore | None, "beyond it"]
    drop: Annotated[Relative | None, "at equal difficulty; null for no_context"]
    drop_ci_low: Annotated[Relative | None, "lower limit of the drop"]
    drop_ci_high: Annotated[Relative | None, "upper limit of the drop"]
    bins: Annotated[Sequence[BinMean], "by length bin"]
    identified: Annotated[Identified, "whether this control separates length"]
    says: Annotated[Sequence[str], "sentences"]
    document: Annotated[MeanScore | None, "the same examples, asked with the whole document"] = None
