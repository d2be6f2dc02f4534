"""The result of a utilization experiment: one model, each format, each pair of formats.

A difference is the first format's score minus the second's; above 0 the first is better. Scale
tokens always count the JSON rendering; all other token counts are the rendering's own. Null means
not measured, or not supported by the answers. Calls without an answer are excluded from all means
and tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from contextcliff_dagster.contracts.results.comparison import Difference
from contextcliff_dagster.contracts.results.json_form import (
    Count,
    ExperimentHead,
    Missing,
    Probability,
    Ratio,
    Score,
    Share,
    Spread,
    Tokens,
    Unit,
)
from contextcliff_dagster.contracts.values import Verdict
from contextcliff_dagster.experiments.common.experiment import Alarm, CheckOutcome, CheckSpec
from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, QuestionKind
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format

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
    """The longest length up to which a loss above the tolerance is ruled out."""

    tolerance: Annotated[Share, "loss relative to the baseline"]
    cap: Annotated[Length | None, "certified cap; null: none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisProfile:
    """Profile of one format along one length axis."""

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
    """Score of one format at one scale; the interval is over documents."""

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
    """Scores and both axis profiles of one format, for one benchmark or all."""

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
    """Score by position of the evidence in the document."""

    format: Annotated[Format, "how the records are written"]
    third: Annotated[Literal["first", "middle", "last"], "part of the document"]
    n: Annotated[Count, "questions with an answer"]
    mean: Annotated[Score | None, "mean score"]
    ci_low: Annotated[Score | None, "lower limit of the mean"]
    ci_high: Annotated[Score | None, "upper limit of the mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensPerRecord:
    """Amount of text that a format needs per record."""

    format: Annotated[Format, "how the records are written"]
    benchmark: Annotated[BenchmarkName, "benchmark"]
    n_documents: Annotated[Count, "documents"]
    mean: Annotated[Ratio, "tokens per record, all documents summed"]
    ratio: Annotated[Ratio | None, "this mean divided by the first format's; null: unknown"]


FormatVerdict = Literal[
    "floor",
    "structure_better",
    "prose_better",
    "first_better",
    "second_better",
    "no_difference",
    "task_dependent",
    "undecided",
]
"""Verdict on a pair of formats. `floor`: almost no answer is right in either format.
`first_better` and `second_better`: neither format is prose."""
DivergenceStatus = Literal["parted", "at_smallest", "not_parted"]
Limit = Annotated[Difference | None, "limit of the difference; null without one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Exact McNemar test on one question per document. Its number is the seed modulo the number of
    questions that both formats answered, so that the question kinds take turns."""

    n: Annotated[Count, "documents"]
    only_a: Annotated[Count, "right in the first format alone"]
    only_b: Annotated[Count, "right in the second format alone"]
    p_value: Annotated[Probability, "two-sided: twice the smaller binomial tail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedT:
    """Student's paired t-test on the mean difference of each document."""

    t: Annotated[Ratio | None, "mean difference in standard errors; null: they do not differ"]
    degrees: Annotated[Count, "degrees of freedom"]
    p_value: Annotated[Probability | None, "two-sided; null: the documents do not differ"]
    assumes: Annotated[str, "assumptions of the p-value, a sentence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceTest:
    """The difference between two formats on some documents, with its tests."""

    n: Annotated[Count, "questions compared: pairs, or the smaller count of the two formats"]
    n_documents: Annotated[Count, "documents of these questions"]
    dropped: Annotated[Count, "questions left out because one or both formats have no answer"]
    mean_a: Annotated[Score | None, "mean score of the first format"]
    mean_b: Annotated[Score | None, "mean score of the second format"]
    difference: Annotated[Difference | None, "mean_a minus mean_b"]
    ci_low: Annotated[Limit, "score interval of this difference alone, inside the band"]
    ci_high: Annotated[Limit, "score interval of this difference alone, inside the band"]
    band_low: Annotated[Limit, "holds for all scales and their mean at once"]
    band_high: Annotated[Limit, "holds for all scales and their mean at once"]
    only_a: Annotated[Count | None, "pairs right in the first format alone; null: unpaired"]
    only_b: Annotated[Count | None, "pairs right in the second format alone; null: unpaired"]
    p_value: Annotated[Probability | None, "permutation of whole documents, two-sided"]
    p_exact: Annotated[bool, "over all permutations; else over drawn ones"]
    p_holm: Annotated[Probability | None, "p_value adjusted for all scales; null for the mean"]
    mcnemar: Annotated[McNemar | None, "null: unpaired, or scores that are not 0 or 1"]
    t_test: Annotated[PairedT | None, "null: unpaired, or a single document"]
    not_tested: Annotated[str | None, "why a value is null, a sentence"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDifference:
    """Comparison of two formats at one scale."""

    scale: Annotated[str, "label, such as 8k"]
    scale_tokens: Annotated[Tokens, "of the JSON rendering, as planned"]
    tokens_a: Annotated[Tokens | None, "mean length of the first format's renderings"]
    tokens_b: Annotated[Tokens | None, "mean length of the second format's renderings"]
    test: Annotated[DifferenceTest, "the difference at this scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Length at which two formats begin to differ by more than the margin, in JSON tokens.

    The band decides whether they diverge. Estimate and interval come from both fitted curves, which
    assume that a score never recovers with length. Between scales the curves are straight over log
    tokens; the interval ends at scales, because no length in between was measured.
    """

    status: Annotated[
        DivergenceStatus,
        "whether the band leaves the margin: beyond the smallest scale, at it, or at none",
    ]
    better: Annotated[Format | None, "the format with the higher score; null: not parted"]
    tokens: Annotated[Tokens | None, "estimate; null: not parted, or not after the smallest scale"]
    low_tokens: Annotated[Tokens | None, "lower limit; null: open, from before the smallest scale"]
    high_tokens: Annotated[Tokens | None, "upper limit; null: open, beyond the largest scale"]
    shown_at_tokens: Annotated[Tokens | None, "first scale whose band leaves the margin"]
    sentence: Annotated[str, "the same in words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDifference:
    """Comparison of two formats on one kind of question, over all scales."""

    question_kind: Annotated[QuestionKind, "kind of question"]
    n: Annotated[Count, "questions compared"]
    mean_a: Annotated[Score | None, "mean score of the first format"]
    mean_b: Annotated[Score | None, "mean score of the second format"]
    difference: Annotated[Difference | None, "mean_a minus mean_b"]
    ci_low: Annotated[Limit, "score interval of this kind alone"]
    ci_high: Annotated[Limit, "score interval of this kind alone"]
    p_value: Annotated[Probability | None, "permutation of whole documents, two-sided"]
    p_holm: Annotated[Probability | None, "adjusted for all kinds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedsNeeded:
    """Documents per scale and benchmark needed to show a difference with power .8."""

    difference: Annotated[Share, "true difference"]
    one_scale: Annotated[Count | None, "at one scale, tested alone; null: not known"]
    all_scales: Annotated[Count | None, "at any scale of the simultaneous band; null: not known"]
    discordance: Annotated[Share | None, "pairs with exactly one right answer, at this difference"]
    correlation: Annotated[Share | None, "of the differences of two questions on one document"]
    questions: Annotated[Spread | None, "questions per document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeComparison:
    """Comparison of two formats on one benchmark, or on all pooled."""

    benchmark: Scope
    correlation: Annotated[Share, "of differences within a document, as used for the band"]
    correlation_assumed: Annotated[bool, "too few answers differ to estimate it"]
    overall: Annotated[DifferenceTest, "over all scales that both formats have"]
    scales: Annotated[Sequence[ScaleDifference], "shortest first"]
    divergence: Annotated[Divergence, "where they part"]
    equivalent: Annotated[
        bool, "the band lies within the margin at every scale compared; false at the floor"
    ]
    excluded: Annotated[Share | None, "smallest difference that the band rules out at every scale"]
    kinds: Annotated[Sequence[KindDifference], "by kind of question"]
    seeds_needed: Annotated[Sequence[SeedsNeeded], "for differences of .1 and .2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatComparison:
    """Comparison of a pair of formats; the first, ``a``, is the reference."""

    a: Annotated[Format, "first format"]
    b: Annotated[Format, "second format"]
    paired: Annotated[bool, "the same records and questions in both; else documents differ"]
    unpaired_reason: Annotated[str | None, "why paired tests are null, a sentence"]
    verdict: Annotated[FormatVerdict, "what the intervals say"]
    better: Annotated[Format | None, "the better format if the verdict names one"]
    pooled: Annotated[ScopeComparison, "over all benchmarks"]
    benchmarks: Annotated[Sequence[ScopeComparison], "each alone; empty with a single one"]
    sentences: Annotated[Sequence[str], "verdict and divergence in words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of a condition against its reference; pairs share documents and questions."""

    factor: Annotated[str, "order, verbosity, corruption, thought, question, evidence, benchmark"]
    level: Annotated[str, "the condition, such as shuffled"]
    reference: Annotated[str, "what it is compared with"]
    format: Annotated[Format | None, "null: all formats pooled"]
    paired: Annotated[bool, "the same documents and questions"]
    n: Annotated[Count, "questions compared"]
    n_documents: Annotated[Count, "documents of these questions"]
    dropped: Annotated[Count, "questions left out because one or both have no answer"]
    mean: Annotated[Score | None, "mean score under the condition"]
    mean_reference: Annotated[Score | None, "mean score of the reference"]
    difference: Annotated[Difference | None, "mean minus mean_reference"]
    ci_low: Annotated[Limit, "score interval of this kind alone"]
    ci_high: Annotated[Limit, "score interval of this kind alone"]
    p_value: Annotated[Probability | None, "permutation of whole documents, two-sided"]
    p_holm: Annotated[Probability | None, "adjusted for all effects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationResult(ExperimentHead):
    """Result of one model: what its answers show about formats. Scores and shares are 0..1."""

    tokenizer: Annotated[str | None, "tokenizer that counts the tokens"]
    window_tokens: Annotated[Tokens | None, "context window of the model, in its own tokens"]
    match: Annotated[Literal["content", "tokens"], "what the formats share at a scale"]
    evidence: Annotated[
        Literal["growing", "fixed"] | None,
        "growing: longer documents have more relevant records, so not only length causes losses",
    ]
    needed_shortest: Annotated[
        Ratio | None, "relevant records per question, mean at the smallest scale"
    ]
    needed_longest: Annotated[Ratio | None, "the same at the largest scale"]
    benchmarks: Annotated[Sequence[BenchmarkName], "measured benchmarks"]
    formats: Annotated[Sequence[Format], "measured formats; the first is the reference"]
    scales: Annotated[Sequence[str], "labels, shortest first"]
    margin: Annotated[Share, "largest difference at which formats count as equal"]
    tolerance: Annotated[Share, "loss relative to the baseline that a cap allows"]
    n: Annotated[Count, "answers, all conditions"]
    missing: Annotated[Missing, "planned calls without an answer, all conditions"]
    verdict: Annotated[FormatVerdict, "of the first pair with prose, else of the first pair"]
    curves: Annotated[Sequence[FormatCurve], "by format: all benchmarks, then each"]
    comparisons: Annotated[Sequence[FormatComparison], "by pair of formats"]
    effects: Annotated[Sequence[Effect], "of the other conditions, against the base"]
    positions: Annotated[Sequence[PositionScore], "score by evidence position"]
    tokens_per_record: Annotated[Sequence[TokensPerRecord], "by format and benchmark"]


PLATEAU_FLOOR = 0.3
"""Baseline needed in at least one format for a large loss or difference to be possible."""

DIFFERENCES = frozenset(
    {"structure_better", "prose_better", "first_better", "second_better", "task_dependent"}
)
"""Verdicts for formats that differ."""

PLATEAU = CheckSpec(
    "plateau",
    "Each model can do the task on the shortest documents in at least one format, so that losses "
    "and differences can be measured.",
    of="result",
)


def headline_pair(comparisons: Sequence[FormatComparison]) -> FormatComparison | None:
    """Return the pair of formats to which the result's verdict refers."""
    with_prose = (pair for pair in comparisons if "prose" in (pair.a, pair.b))
    return next(with_prose, comparisons[0] if comparisons else None)


def overview(result: UtilizationResult) -> dict[str, Any]:
    """Return the result as one row: verdict, point of divergence, and each format's cap."""
    row: dict[str, Any] = {"model": result.model, "verdict": result.verdict.replace("_", " ")}
    if result.comparisons:
        parting = result.comparisons[0].pooled.divergence
        row |= {
            "part at (JSON tokens)": parting.tokens,
            "between": parting.low_tokens,
            "and": parting.high_tokens,
        }
    for curve in result.curves:
        if curve.benchmark is None:
            row[f"{curve.format}: mean score"] = curve.mean
            row[f"{curve.format}: safe cap (tokens)"] = curve.tokens and curve.tokens.cap
    return {**row, "answers": result.n}


def check_plateau(results: Sequence[UtilizationResult]) -> CheckOutcome:
    """Return whether every model has a format with a baseline high enough to show a loss."""
    low = {
        result.model: best
        for result in results
        if (best := max(_baselines(result).values(), default=0.0)) < PLATEAU_FLOOR
    }
    why = "; ".join(f"{model}: baseline {best:.2f} at best" for model, best in low.items())
    return CheckOutcome(
        PLATEAU.name,
        not low,
        why or f"every model has a baseline of {PLATEAU_FLOOR:.2f} or more in some format",
        values={"below": len(low)},
        rows={"baselines": [{"model": result.model, **_baselines(result)} for result in results]},
    )


def difference_alarm(results: Sequence[UtilizationResult], campaign: str) -> Alarm | None:
    """Return the alert for the channels; None if no model differs by format."""
    differ = [result for result in results if result.verdict in DIFFERENCES]
    if not differ:
        return None
    return Alarm(
        "formats_differ",
        campaign,
        [f"{result.model}: {result.verdict}" for result in differ],
        " ".join(f"{result.model}: {result.headline[0]}" for result in differ),
        {"campaign": campaign, "models": [overview(result) for result in differ]},
    )


def _baselines(result: UtilizationResult) -> Mapping[str, float]:
    return {
        str(curve.format): curve.tokens.baseline
        for curve in result.curves
        if curve.benchmark is None and curve.tokens and curve.tokens.baseline is not None
    }
