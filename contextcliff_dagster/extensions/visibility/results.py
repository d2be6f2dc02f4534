"""The result of a visibility experiment: the effect of each axis on one model's runs.

A run is one benchmark, one seed and one level of each axis. Differences are of pairs of runs that
are equal in all but one axis: the mean at ``level`` less the mean at ``reference``, each
benchmark-seed counting alike. Below 0 the regret is less, so the level is better. Levels are
written as text, a history of five steps as "5". Null means not measured, or not supported by the
runs. Runs of which a step has no answer are in no mean and no test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from contextcliff_dagster.contracts.results.json_form import (
    Count,
    ExperimentHead,
    Probability,
    Ratio,
    Share,
    Spread,
    Unit,
)

OutcomeName = Literal[
    "regret",
    "area",
    "churn",
    "stagnation",
    "oscillation",
    "novelty",
    "clamped_changes",
    "unparsable_share",
    "fallback_share",
]
"""Outcome of a run. `regret`: after the last step; `area`: mean over steps; others: `behaviour`."""
OUTCOMES: tuple[OutcomeName, ...] = get_args(OutcomeName)
Contrast = Literal["shown", "length", "content", "level"]
"""Kind of contrast. `shown`: shown minus hidden; `length`: placebo minus hidden, the effect of a
longer prompt; `content`: shown minus placebo; `level`: a non-text level minus the first one."""
EffectVerdict = Literal["better", "worse", "no_benefit", "higher", "lower", "undecided"]
"""Verdict on an effect. Regret and area: `better` or `worse` if significant, `no_benefit` if the
margin is ruled out as a benefit. Behaviour: `higher` or `lower` if significant."""
VisibilityVerdict = Literal["helps", "harms", "mixed", "no_benefit", "undecided"]
"""Verdict on showing more, from effects on the regret after the last step."""
Difference: TypeAlias = Annotated[float, Unit("share", -1, 1)]
DoubleDifference: TypeAlias = Annotated[float, Unit("share", -2, 2)]
StandardDeviations: TypeAlias = Annotated[float, Unit("SD")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkEffect:
    """An axis effect on one benchmark, with seeds as clusters; not used for tests."""

    benchmark: Annotated[str, "task that is tuned"]
    n_pairs: Annotated[Count, "pairs of runs"]
    n_clusters: Annotated[Count, "seeds of these pairs"]
    difference: Annotated[Difference | None, "mean over seeds"]
    ci_low: Annotated[Difference | None, "Student's interval over seeds; null: a single one"]
    ci_high: Annotated[Difference | None, "Student's interval over seeds; null: a single one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisEffect:
    """Paired difference of an outcome between two levels of an axis."""

    axis: Annotated[str, "axis whose level differs within a pair"]
    level: Annotated[str, "level whose effect this is"]
    reference: Annotated[str, "level that it is compared with"]
    contrast: Annotated[Contrast, "what the comparison is of"]
    outcome: Annotated[OutcomeName, "figure of a run that is compared"]
    n_pairs: Annotated[Count, "pairs of runs that both have the outcome"]
    n_clusters: Annotated[Count, "benchmark-seeds of these pairs"]
    mean: Annotated[Share | None, "mean at the level"]
    mean_reference: Annotated[Share | None, "mean at the reference"]
    difference: Annotated[Difference | None, "mean of the level less that of the reference"]
    ci_low: Annotated[Difference | None, "Student's interval over benchmark-seeds"]
    ci_high: Annotated[Difference | None, "Student's interval over benchmark-seeds"]
    p_value: Annotated[
        Probability | None, "two-sided, labels flipped within pairs; null: fewer than two seeds"
    ]
    p_exact: Annotated[bool, "over all flips; else over drawn ones"]
    p_holm: Annotated[
        Probability | None,
        "adjusted for all effects, the regret's with half of the error rate; null: no member",
    ]
    standardised: Annotated[
        StandardDeviations | None, "difference in SD of runs within benchmark and level"
    ]
    excluded: Annotated[
        Difference | None,
        "a benefit as large is excluded, one-sided; of regret and area; null: not known",
    ]
    verdict: Annotated[EffectVerdict, "what test and limits show"]
    by_benchmark: Annotated[Sequence[BenchmarkEffect], "in the study's order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Interaction of two axes in their effect on the regret, from fours of runs.

    The effect of the first axis at ``other_level`` minus its effect at ``other_reference``.
    """

    axis: Annotated[str, "axis whose effect may depend on the other"]
    level: Annotated[str, "its level"]
    reference: Annotated[str, "level that it is compared with"]
    other: Annotated[str, "the other axis"]
    other_level: Annotated[str, "level of the other axis"]
    other_reference: Annotated[str, "level that it is compared with"]
    n_fours: Annotated[Count, "fours of runs, equal in benchmark, seed and all other axes"]
    n_clusters: Annotated[Count, "benchmark-seeds of these fours"]
    difference: Annotated[DoubleDifference | None, "difference of the differences of regret"]
    ci_low: Annotated[DoubleDifference | None, "Student's interval over benchmark-seeds"]
    ci_high: Annotated[DoubleDifference | None, "Student's interval over benchmark-seeds"]
    p_value: Annotated[Probability | None, "two-sided, signs of fours flipped"]
    p_holm: Annotated[Probability | None, "adjusted for all interactions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Number of seeds needed to show an effect of .2 SD of the regret on the study's benchmarks."""

    axis: Annotated[str, "axis whose effect it is"]
    level: Annotated[str, "its level"]
    reference: Annotated[str, "level that it is compared with"]
    effect: Annotated[StandardDeviations, "true effect, in SD of runs within benchmark and level"]
    power: Annotated[Probability, "chance to show it"]
    significance: Annotated[Probability, "significance level, that of Holm's first step"]
    run_sd: Annotated[Spread, "SD of the regret between runs of one benchmark and level"]
    seed_sd: Annotated[Spread, "SD of the effect between benchmark-seeds, apart from single pairs"]
    pair_sd: Annotated[Spread | None, "SD of pairs of one benchmark-seed; null: single pairs"]
    pairs_per_seed: Annotated[Ratio, "mean pairs of a benchmark-seed"]
    seeds: Annotated[Count, "seeds of the study"]
    seeds_needed: Annotated[Count | None, "seeds needed; null: more than 10,000"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Mean regret of the configuration that would be reported after a step."""

    step: Annotated[Count, "step; 0 is the start"]
    regret: Annotated[Share, "mean over benchmark-seeds"]
    ci_low: Annotated[Share | None, "Student's interval over benchmark-seeds; null: a single one"]
    ci_high: Annotated[Share | None, "Student's interval over benchmark-seeds; null: a single one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Regret by step, for runs at one level of an axis or for a search without a model."""

    axis: Annotated[str | None, "axis; null: a search without a model, or all runs"]
    level: Annotated[str, "its level; of a search its name; of all runs `all`"]
    n_runs: Annotated[Count, "runs"]
    n_clusters: Annotated[Count, "benchmark-seeds of these runs"]
    points: Annotated[Sequence[CurvePoint], "from the start to the last step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchComparison:
    """Comparison of the model with a search without one, on equal splits, starts and budget.

    Below 0 the model has less regret after the last step. Not used for tests.
    """

    name: Annotated[str, "random, sobol, tpe, hill_climb"]
    n_clusters: Annotated[Count, "benchmark-seeds that both have"]
    regret: Annotated[Share, "mean regret of the search after the last step"]
    area: Annotated[Share, "mean area under its curve of regret"]
    difference: Annotated[Difference, "mean of all runs of the model less that of the search"]
    ci_low: Annotated[Difference | None, "Student's interval over benchmark-seeds"]
    ci_high: Annotated[Difference | None, "Student's interval over benchmark-seeds"]
    curve: Annotated[Curve, "its regret by step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Means over all runs of one combination of levels."""

    signature: Annotated[str, "all levels as a slug"]
    levels: Annotated[Mapping[str, str], "level of each axis"]
    n_runs: Annotated[Count, "whole runs"]
    means: Annotated[Mapping[str, Share | None], "mean of each outcome; null: no run has it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRun:
    """A run with an unanswered step; effects exclude it and its pairs."""

    run: Annotated[str, "key of the run: benchmark, seed, levels"]
    steps: Annotated[Count, "steps that have an answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityResult(ExperimentHead):
    """Result of one model's runs. Regret, area and shares are 0..1."""

    benchmarks: Annotated[Sequence[str], "tasks that are tuned"]
    steps: Annotated[Count, "proposals in a run"]
    seeds: Annotated[Sequence[Count], "of split, model, start and draws"]
    levels: Annotated[Mapping[str, Sequence[str]], "levels of each axis, the reference first"]
    n_runs: Annotated[Count, "whole runs"]
    missing: Annotated[Sequence[MissingRun], "planned runs that are not whole"]
    margin: Annotated[Share, "difference of the regret that matters"]
    verdict: Annotated[VisibilityVerdict, "of the axes that show more"]
    effects: Annotated[Sequence[AxisEffect], "outcome by outcome, regret first"]
    interactions: Annotated[Sequence[Interaction], "of each pair of axes, on the regret"]
    plan: Annotated[Sequence[Plan], "seeds needed, one entry an effect on the regret"]
    curves: Annotated[Sequence[Curve], "of all runs, then of each level of each axis that varies"]
    searches: Annotated[Sequence[SearchComparison], "searches without a model"]
    cells: Annotated[Sequence[Cell], "each combination of levels"]
