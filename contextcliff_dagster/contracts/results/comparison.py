"""``comparison.json``: two measurements against each other, B minus A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.fields import (
    Count,
    Moment,
    Probability,
    Ratio,
    Relative,
    Score,
    Share,
    Tokens,
    Unit,
)
from contextcliff_dagster.contracts.results.kv import KvComparison

Difference = Annotated[float, Unit("score", -1, 1)]
AdjustedP = Annotated[Probability | None, "of no difference, adjusted for overall and all bins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One of the two measurements."""

    name: Annotated[str, "what it is called here"]
    study: Annotated[str | None, "study"]
    model: Annotated[str | None, "serving configuration"]
    campaign: Annotated[str | None, "dated measurement of the study"]
    identity: Annotated[str | None, "hash of the serving identity"]
    tokenizer: Annotated[str | None, "counts its lengths"]
    verdict: Annotated[str | None, "what the length axis shows"]
    score: Annotated[str | None, "name of the score"]
    n: Annotated[Count, "examples compared"]
    n_documents: Annotated[Count, "documents of these examples"]
    left_out: Annotated[Count, "examples that the other did not answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """Means and their difference over all examples; unpaired: at the same mix of lengths."""

    n_a: Annotated[Count, "examples of A"]
    n_b: Annotated[Count, "examples of B"]
    mean_a: Annotated[Score | None, "mean score of A"]
    mean_b: Annotated[Score | None, "mean score of B"]
    difference: Annotated[Difference | None, "mean of B minus mean of A"]
    ci_low: Annotated[Relative | None, "lower limit of the difference"]
    ci_high: Annotated[Relative | None, "upper limit of the difference"]
    p_value: AdjustedP


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingBin:
    """The same in one length bin."""

    bin: Annotated[str, "length bin"]
    edge_low: Annotated[Tokens, "first length of the bin"]
    edge_high: Annotated[Tokens, "first length after the bin; the last bin is closed"]
    n_a: Annotated[Count, "examples of A"]
    n_b: Annotated[Count, "examples of B"]
    mean_a: Annotated[Score | None, "mean score of A"]
    mean_b: Annotated[Score | None, "mean score of B"]
    difference: Annotated[Difference | None, "mean of B minus mean of A"]
    ci_low: Annotated[Relative | None, "lower limit of the difference"]
    ci_high: Annotated[Relative | None, "upper limit of the difference"]
    p_value: AdjustedP


@dataclass(frozen=True, slots=True)
class DifferencePoint:
    """The smoothed difference at one length."""

    tokens: Annotated[Tokens, "length"]
    difference: Annotated[Relative, "smoothed score of B minus that of A"]
    ci_low: Annotated[Relative, "lower edge of the simultaneous band"]
    ci_high: Annotated[Relative, "upper edge of the simultaneous band"]


@dataclass(frozen=True, slots=True)
class ComparedCaps:
    """Certified caps as reported."""

    a_tokens: Annotated[Tokens | None, "cap of A"]
    b_tokens: Annotated[Tokens | None, "cap of B"]
    ratio: Annotated[Ratio | None, "B / A"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossShift:
    """A length of each side, and the ratio B / A; a null end of its interval is open."""

    a_tokens: Annotated[Tokens | None, "length of A"]
    b_tokens: Annotated[Tokens | None, "length of B"]
    ratio: Annotated[Ratio | None, "B / A"]
    ci_low: Annotated[Ratio | None, "lower limit of the ratio"]
    ci_high: Annotated[Ratio | None, "upper limit of the ratio"]

    @property
    def is_bounded(self) -> bool:
        """Whether the interval has an end: without one the ratio says nothing."""
        return self.ci_low is not None or self.ci_high is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B minus A. Tokens are of the document; scores and shares 0..1; null means not measured or not
    supported."""

    schema_version: Annotated[Literal["1.0", "1.1"], "of this file's format"]
    created_at: Annotated[Moment, "time of the comparison"]
    a: Annotated[ComparedSide, "A, the reference"]
    b: Annotated[ComparedSide, "B"]
    paired: Annotated[bool, "the same examples; else different documents"]
    n: Annotated[Count | None, "examples that both answered, where paired"]
    n_documents: Annotated[Count | None, "documents of these examples"]
    confidence: Annotated[Share, "of every interval"]
    tolerance: Annotated[Share, "loss of the baseline that loss_shift is about"]
    overall: Annotated[Differing, "over all examples"]
    bins: Annotated[Sequence[DifferingBin], "by length"]
    curve: Annotated[Sequence[DifferencePoint], "smoothed difference with a simultaneous band"]
    caps: Annotated[ComparedCaps, "certified caps as reported"]
    loss_shift: Annotated[LossShift, "shift of the length at which the tolerance is lost"]
    warnings: Annotated[Sequence[str], "sentences"]
    sentence: Annotated[str, "the comparison in one sentence"]
    midpoint_shift: Annotated[
        LossShift | None, "shift of the length at which half of the drop is reached, if both drop"
    ] = None
    kv: Annotated[
        KvComparison | None, "of two KV policies of one model: memory, times, equal score"
    ] = None
