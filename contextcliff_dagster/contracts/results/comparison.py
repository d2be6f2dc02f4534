"""``comparison.json``: the difference between two measurements, B minus A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from contextcliff_dagster.contracts.results.json_form import (
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

Quantity = Literal["kv_bytes", "kv_prefill_ms", "kv_press_ms", "kv_question_ms", "kv_decode_ms"]
Measure = Annotated[float, Unit("bytes or ms", 0)]

UNPRESSED = "unpressed"
"""Policy name of a model whose engine does not compress the KV cache."""


class KvPolicy(NamedTuple):
    """The KV cache policy of a model. ``base``: the model; ``budget``: share of the cache kept."""

    base: str
    policy: str
    budget: float = 1.0

    @property
    def keeps_all(self) -> bool:
        """Return whether the policy keeps the whole cache, the reference for other policies."""
        return self.policy in ("none", UNPRESSED)

    @property
    def label(self) -> str:
        """Return the policy and its budget, as in ``snapkv at 20%``; a full budget is not shown."""
        return self.policy if self.budget == 1 else f"{self.policy} at {100 * self.budget:g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWindow:
    """Neighbouring documents, and whether the drop in their mean score is below the margin."""

    from_tokens: Annotated[Tokens, "shortest document"]
    to_tokens: Annotated[Tokens, "longest document"]
    n_documents: Annotated[Count, "documents that both answered"]
    drop: Annotated[Relative, "mean score of A minus that of B, over documents"]
    p_value: Annotated[Probability, "of a drop of the margin or more"]
    equal: Annotated[
        bool,
        "A scores more than the margin, and a drop of it is excluded, up to here",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualScore:
    """Up to which length B is shown to score like A."""

    margin: Annotated[Share, "a mean drop below it counts as equal, in units of the score"]
    confidence: Annotated[Share, "of all windows together, one-sided"]
    tokens: Annotated[Tokens | None, "longest document of the last equal window; null: none is"]
    windows: Annotated[Sequence[EqualWindow], "in order of length"]


@dataclass(frozen=True, slots=True)
class KvCap:
    """B against A's baseline, from the documents that both answered; null lengths: not within the
    measured ones."""

    tokens: Annotated[
        Tokens | None, "B's safe cap against A's baseline, never beyond its own; null: none"
    ]
    baseline: Annotated[Score, "mean score of A's shortest documents"]
    lost_tokens: Annotated[Tokens | None, "length at which B has lost the tolerance of it"]
    lost_low: Annotated[Tokens | None, "lower limit of that length"]
    lost_high: Annotated[Tokens | None, "upper limit of that length"]


@dataclass(frozen=True, slots=True)
class Median:
    """Median of one value a document; the limits are order statistics, null for few documents."""

    n: Annotated[Count, "documents"]
    median: Annotated[Measure, "median"]
    ci_low: Annotated[Measure | None, "lower limit of the median"]
    ci_high: Annotated[Measure | None, "upper limit of the median"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost:
    """One quantity of both sides in one length bin; null where a side did not measure it."""

    quantity: Annotated[
        Quantity,
        "memory of the kept entries; time to read the document, to choose entries, to read "
        "the question up to the first token of the answer, for each further one",
    ]
    bin: Annotated[str, "length bin"]
    edge_low: Annotated[Tokens, "first length of the bin"]
    edge_high: Annotated[Tokens, "first length after the bin; the last bin is closed"]
    a: Annotated[Median | None, "of A"]
    b: Annotated[Median | None, "of B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvComparison:
    """What a KV policy saves, and up to which length the score shows no price of it."""

    base: Annotated[str, "the model whose cache is kept so"]
    policy: Annotated[str, "policy of B"]
    budget: Annotated[Share, "share of the document's entries that B keeps"]
    policy_a: Annotated[str, "policy of A"]
    budget_a: Annotated[Share, "share that A keeps"]
    saved_share: Annotated[
        Relative | None, "median over documents of 1 - bytes of B / bytes of A, up to the length"
    ]
    equal: Annotated[EqualScore, "up to which length the score is equal"]
    costs: Annotated[Sequence[KvCost], "memory and times over length"]
    sentence: Annotated[str, "the statement on memory and score"]
    cap: Annotated[KvCap | None, "against A's baseline; absent in older files"] = None


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
        """Return whether the interval has an end; without one the ratio is uninformative."""
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
