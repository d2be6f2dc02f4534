"""The result of a continuation experiment: one model, each arm, each arm against the first.

Sizes are context sizes in tokens; the smallest one with outcomes is the baseline of the others. A
decline is the mean at the smallest size less the mean at another: above 0 the model has lost. All
passages have equal weight, whatever their rounds. Null means not measured, or not supported by the
outcomes. Generations without an outcome enter no mean and no test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from contextcliff_dagster.contracts.results.comparison import Difference
from contextcliff_dagster.contracts.results.json_form import (
    Count,
    ExperimentHead,
    Probability,
    Ratio,
    Score,
    Share,
    Spread,
    Tokens,
    Unit,
)

EndpointName = Literal["score", "intact"]
"""`score`: nearness to the author's prose, 0..1; `intact`: share without collapse."""
ContinuationVerdict = Literal["collapse", "decline", "no_decline", "undecided", "insufficient_data"]
ArmVerdict = Literal["better", "worse", "mixed", "alike", "undecided"]
"""Verdict on an arm against the reference arm."""
Clusters = Literal["texts", "passages"]
Limit = Annotated[Difference | None, "limit of the difference; null without one"]
Slope = Annotated[float, Unit("score per doubling")]
Value = Annotated[float, Unit("of the metric")]
RoundMeans = Annotated[
    Sequence[Value | None], "mean over passages of each round, of the first 20; null without any"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """The mean at the smallest size less that at another one, over passages that have both."""

    n_passages: Annotated[Count, "passages with outcomes at both sizes"]
    decline: Annotated[Difference | None, "mean over these passages"]
    ci_low: Annotated[Limit, "Student's, over clusters"]
    ci_high: Annotated[Limit, "Student's, over clusters"]
    p_value: Annotated[Probability | None, "one-sided sign flips of whole passages"]
    p_exact: Annotated[bool, "over all signs; else over drawn ones"]
    p_holm: Annotated[
        Probability | None, "adjusted for all tests of the arm; null: cannot become significant"
    ]
    upper: Annotated[Limit, "a greater decline is excluded, one-sided"]
    not_tested: Annotated[str | None, "why a value is null, a sentence"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOutcome:
    """One endpoint at one context size."""

    context_tokens: Annotated[Tokens, "context size as planned"]
    n: Annotated[Count, "generations with an outcome"]
    n_passages: Annotated[Count, "passages of these generations"]
    mean: Annotated[Score | None, "mean over passages"]
    ci_low: Annotated[Score | None, "Student's, over clusters"]
    ci_high: Annotated[Score | None, "Student's, over clusters"]
    decline: Annotated[Decline | None, "from the smallest size; null at that size itself"]
    rounds: RoundMeans = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Fall over all sizes at once: sizes are permuted within passages."""

    slope: Annotated[Slope, "change per doubling of the context; below 0 the model loses"]
    ci_low: Annotated[Slope | None, "lower limit, Student's over clusters"]
    ci_high: Annotated[Slope | None, "upper limit, Student's over clusters"]
    p_value: Annotated[Probability, "one-sided: a fall at least as steep"]
    p_holm: Annotated[Probability | None, "adjusted for all tests of the arm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossLocation:
    """Where half of the loss has happened, by the instrument's posterior of falling curves.

    The interval ends at measured sizes, as nothing between them was measured. It assumes that a
    mean that has fallen stays down.
    """

    tokens: Annotated[Tokens | None, "estimate; null: at or before the smallest size"]
    low_tokens: Annotated[Tokens, "lower limit, a measured size"]
    high_tokens: Annotated[Tokens, "upper limit, a measured size"]
    shown_at_tokens: Annotated[Tokens | None, "first size whose decline is significant"]
    loss: Annotated[Difference, "fitted loss at the largest size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The score, or the share without collapse, over all sizes."""

    name: Annotated[EndpointName, "what is measured"]
    sizes: Annotated[Sequence[SizeOutcome], "smallest first"]
    trend: Annotated[Trend | None, "null: fewer than three sizes, or no spread"]
    location: Annotated[LossLocation | None, "null: no loss is shown"]
    excluded: Annotated[Limit, "least decline that is excluded at every size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Where the scores' variance comes from, sizes compared within passages."""

    passage: Annotated[Spread, "SD between passages, all sizes averaged"]
    size_within_passage: Annotated[Spread, "SD of what sizes do to passages differently"]
    round: Annotated[Spread | None, "SD between rounds of a passage and size; null: single rounds"]
    rounds: Annotated[Ratio, "mean rounds a passage and size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Passages that show a decline of the score at a single size."""

    decline: Annotated[Share, "true decline of the mean score, at one size"]
    power: Annotated[Probability, "chance to show it"]
    rounds: Annotated[Count, "rounds a passage and size"]
    n_passages: Annotated[Count | None, "passages needed; null: no number suffices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm: one way to serve the model (KV precision, RoPE setting, temperature)."""

    arm: Annotated[str, "name of the arm"]
    verdict: Annotated[ContinuationVerdict, "what its tests and limits show"]
    reason: Annotated[str, "the verdict in words"]
    sentences: Annotated[Sequence[str], "where the loss lies, what is excluded"]
    n: Annotated[Count, "generations with an outcome"]
    missing: Annotated[Count, "planned continuations of which there is no text"]
    unscored: Annotated[
        Share, "largest share of texts at a size that have no score: cut off too early to compare"
    ] = 0.0
    n_passages: Annotated[Count, "passages with an outcome"]
    n_texts: Annotated[Count, "source texts of these passages"]
    clusters: Annotated[Clusters, "units of the intervals"]
    tests: Annotated[Count, "tests that Holm's adjustment is over"]
    score: Annotated[Endpoint, "nearness to the author's prose"]
    intact: Annotated[Endpoint, "share of generations without collapse"]
    collapses: Annotated[
        Sequence[Mapping[str, Count]], "generations by kind of collapse, one entry a size"
    ]
    components: Annotated[Components | None, "of the scores; null: not known"]
    plan: Annotated[Sequence[Plan], "passages needed, from these components"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDifference:
    """An arm less the reference arm, over passages and sizes that both have."""

    endpoint: Annotated[EndpointName, "what is compared"]
    context_tokens: Annotated[Tokens | None, "context size; null: mean over sizes"]
    extra_decline: Annotated[bool, "whether this is how much more the arm declines up to this size"]
    n_passages: Annotated[Count, "passages with outcomes in both"]
    difference: Annotated[Difference | None, "arm less reference; of declines likewise"]
    ci_low: Annotated[Limit, "Student's, over clusters"]
    ci_high: Annotated[Limit, "Student's, over clusters"]
    p_value: Annotated[Probability | None, "two-sided sign flips of whole passages"]
    p_holm: Annotated[Probability | None, "means and extra declines over all arms; sizes by arm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """An arm against the reference arm."""

    arm: Annotated[str, "name of the arm"]
    reference: Annotated[str, "name of the arm that it is compared with"]
    verdict: Annotated[ArmVerdict, "what the differences show"]
    sentence: Annotated[str, "the verdict in words"]
    overall: Annotated[Sequence[ArmDifference], "means over sizes, and extra declines"]
    sizes: Annotated[Sequence[ArmDifference], "each size, by endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Scores of held-out passages by the authors: the noise floor, never a baseline of a test."""

    n: Annotated[Count, "held-out passages"]
    mean: Annotated[Score, "mean score"]
    floor_low: Annotated[Score, "lower limit of means of as many passages as the study has"]
    floor_high: Annotated[Score, "upper limit of such means"]
    floor_passages: Annotated[Count, "passages of these means"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSize:
    """One metric of prose at one context size."""

    context_tokens: Annotated[Tokens, "context size as planned"]
    n: Annotated[Count, "continuations that have the metric"]
    n_passages: Annotated[Count, "passages of these continuations"]
    mean: Annotated[Value | None, "mean over passages"]
    ci_low: Annotated[Value | None, "Student's, over clusters; null where they agree"]
    ci_high: Annotated[Value | None, "Student's, over clusters; null where they agree"]
    rounds: RoundMeans


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmMetric:
    """One metric of one arm."""

    arm: Annotated[str, "name of the arm"]
    sizes: Annotated[Sequence[MetricSize], "smallest first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorMetric:
    """One metric of what the authors wrote after each point."""

    n_passages: Annotated[Count, "passages that have the metric"]
    mean: Annotated[Value, "mean over passages"]
    sd: Annotated[Value | None, "SD between passages; null of a single one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric of the compared words, as its column of the records. No test rests on it."""

    name: Annotated[str, "column of the records"]
    author: Annotated[AuthorMetric | None, "the authors' own; null: not measured"]
    arms: Annotated[Sequence[ArmMetric], "the reference first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecitedSize:
    """Recited continuations at one context size."""

    context_tokens: Annotated[Tokens, "context size as planned"]
    n: Annotated[Count, "continuations that are long enough to be compared"]
    recited: Annotated[Count, "of these, share more with the author's next text than by chance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRecitation:
    """Recited continuations of one arm."""

    arm: Annotated[str, "name of the arm"]
    sizes: Annotated[Sequence[RecitedSize], "smallest first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recitation:
    """How many continuations are the author's own next text, word for word.

    Recited is one that shares more than any pair of human passages from different places of one
    text does.
    """

    chance_run: Annotated[Count, "words of the longest run that a human pair shares"]
    chance_share: Annotated[Share, "largest share of runs of eight words that a human pair shares"]
    chance_pairs: Annotated[Count, "pairs of human passages"]
    arms: Annotated[Sequence[ArmRecitation], "the reference first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationResult(ExperimentHead):
    """What the continuations of one model say of context sizes. Scores and shares 0..1."""

    tokenizer: Annotated[str | None, "counts the tokens"]
    embedder: Annotated[str | None, "behind the records' coherence; null: not measured"] = None
    window_tokens: Annotated[Tokens | None, "technical window of the model, its own tokens"]
    sizes: Annotated[Sequence[Tokens], "context sizes, smallest first"]
    reference: Annotated[str, "arm that the others are compared with"]
    margin: Annotated[Share, "decline, or difference, that matters"]
    n: Annotated[Count, "generations with an outcome, all arms"]
    missing: Annotated[Count, "planned continuations of which there is no text, all arms"]
    verdict: Annotated[ContinuationVerdict, "of the reference arm"]
    human: Annotated[NoiseFloor | None, "noise floor; null: not given"]
    arms: Annotated[Sequence[ArmResult], "the reference first"]
    comparisons: Annotated[Sequence[ArmComparison], "each other arm against the reference"]
    metrics: Annotated[Sequence[MetricResult], "each metric of prose"] = ()
    recitation: Annotated[
        Recitation | None, "verbatim overlap; null: fewer than two human passages to compare"
    ] = None
