"""What the records of one model say of what it was shown.

Runs of the records, curves of regret, the seeds that a study needs, and the sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.contrast import (
    ClusterMeans,
    studentized_flips,
    units_needed,
)
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.extensions.visibility.analysis.effects import (
    FLIPS,
    PERFORMANCE,
    SHARES,
    VISIBLE,
    Changes,
    Comparison,
    Runs,
    changes_of,
    comparisons_of,
    effects_of,
    fours_of,
    ordered_levels,
    pairs_of,
    widest_comparisons,
)
from contextcliff_dagster.extensions.visibility.baselines import area_under_curve
from contextcliff_dagster.extensions.visibility.behaviour import (
    STEP_COLUMNS,
    behaviour_of,
    start_of,
    step_of,
)
from contextcliff_dagster.extensions.visibility.results import (
    OUTCOMES,
    AxisEffect,
    Cell,
    Curve,
    CurvePoint,
    Interaction,
    MissingRun,
    OutcomeName,
    Plan,
    SearchComparison,
    VisibilityResult,
    VisibilityVerdict,
)
from contextcliff_dagster.extensions.visibility.section import PlannedRun, runs_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.reporting.wording import difference, score

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints
    from contextcliff_dagster.extensions.visibility.section import VisibilitySection
    from contextcliff_dagster.extensions.visibility.tasks.task import Space


def runs_of_records(records: pd.DataFrame, section: VisibilitySection) -> Runs:
    """Return the runs of `tables.VISIBILITY_RECORDS` of one model. No row order matters.

    A run is whole if each of its steps is there once with an answer; only whole runs are kept.

    Raises:
        ContextCliffError: a step of a run has two records.
    """
    by_run = _rows_by_run(records)
    whole, outcomes, curves, paths, missing = [], [], [], [], []
    spaces = {name: task_named(name).space for name in section.benchmarks}
    plan = runs_of(section)
    for run in plan:
        rows = [one for one in by_run.pop(run.key, []) if _answered(one)]
        if [one["step"] for one in rows] != list(range(1, section.steps + 1)):
            missing.append(MissingRun(run=run.key, steps=len(rows)))
            continue
        curve = np.array([rows[0]["start_regret"], *(one["regret"] for one in rows)], float)
        whole.append(run)
        curves.append(curve)
        paths.append("\n".join([rows[0]["start_config"], *(one["config"] for one in rows)]))
        outcomes.append([curve[-1], area_under_curve(curve), *_behaviour(spaces, run, rows)])
    return Runs(
        planned=tuple(whole),
        outcomes=np.array(outcomes, float).reshape(len(whole), len(OUTCOMES)),
        curves=np.array(curves, float).reshape(len(whole), section.steps + 1),
        paths=tuple(paths),
        missing=tuple(missing),
        unplanned=len(by_run),
    )


_COLUMNS = (*("step", "failure", *STEP_COLUMNS, "regret", "start_config", "start_regret"),)


def _rows_by_run(records: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    by_run: dict[str, list[dict[str, Any]]] = {}
    ordered = records.sort_values(["run", "step"], kind="stable")
    names = ordered["run"].tolist()
    columns = zip(*(ordered[name].tolist() for name in _COLUMNS), strict=True)
    for name, row in zip(names, columns, strict=True):
        rows = by_run.setdefault(name, [])
        rows.append(dict(zip(_COLUMNS, row, strict=True)))
        if len(rows) > 1 and rows[-2]["step"] == rows[-1]["step"]:
            raise ContextCliffError(f"Step {row[0]} of run {name} has two records; score again.")
    return by_run


def _answered(row: Mapping[str, Any]) -> bool:
    lost = row["failure"] in {str(tag) for tag in UNSCORED_TAGS}
    return not lost and _known(row["regret"]) and _known(row["start_regret"])


def _known(value: Any) -> bool:
    return value is not None and bool(value == value)


def _behaviour(
    spaces: Mapping[str, Space], run: PlannedRun, rows: Sequence[Mapping[str, Any]]
) -> list[float | None]:
    """The outcomes after regret and area."""
    steps = [start_of(rows[0]), *map(step_of, rows)]
    measured = behaviour_of(spaces[run.benchmark], steps)
    return [getattr(measured, name) for name in OUTCOMES[2:]]


BaselineCurves: TypeAlias = "Mapping[str, Mapping[tuple[str, int], ArrayLike]]"
"""Search -> (benchmark, seed) -> regret by step, the start first; or several such rows."""


def curves_of(
    runs: Runs, levels: Mapping[str, Sequence[str]], settings: AnalysisSettings
) -> list[Curve]:
    """Return the curve of all runs, then of each level of each axis that varies."""
    groups: list[tuple[str | None, str, Bools]] = [(None, "all", np.ones(len(runs.planned), bool))]
    groups += [
        (axis, level, runs.levels[axis] == level)
        for axis, given in levels.items()
        for level in given
        if len(given) > 1
    ]
    return [
        _curve(axis, level, runs.curves[inside], runs.cluster[inside], runs, settings)
        for axis, level, inside in groups
        if inside.any()
    ]


def _curve(
    axis: str | None,
    level: str,
    curves: Floats,
    cluster: Ints,
    runs: Runs,
    settings: AnalysisSettings,
) -> Curve:
    clusters, place = np.unique(cluster, return_inverse=True)
    stratum = runs.benchmark_of_cluster[clusters]
    n = np.bincount(place)
    points = []
    for step in range(curves.shape[1]):
        means = ClusterMeans(np.bincount(place, weights=curves[:, step]) / n, stratum)
        low, high = means.interval(settings.confidence)
        points.append(
            CurvePoint(
                step=step,
                regret=means.mean,
                ci_low=None if low is None else max(low, 0.0),
                ci_high=None if high is None else max(high, 0.0),
            )
        )
    return Curve(
        axis=axis, level=level, n_runs=len(curves), n_clusters=len(clusters), points=points
    )


def searches_of(
    runs: Runs, baselines: BaselineCurves, settings: AnalysisSettings
) -> list[SearchComparison]:
    """Return each search next to the model, over the benchmark-seeds that both have.

    Raises:
        ContextCliffError: a curve has another number of steps than the runs.
    """
    clusters = list(dict.fromkeys((run.benchmark, run.seed) for run in runs.planned))
    n = np.bincount(runs.cluster, minlength=len(clusters))
    of_model = np.bincount(runs.cluster, weights=runs.outcome("regret"), minlength=len(clusters))
    made = []
    for name, given in baselines.items():
        shared = np.array([place for place, key in enumerate(clusters) if key in given], np.int64)
        if not len(shared):
            continue
        curves = [np.atleast_2d(np.asarray(given[clusters[k]], float)) for k in shared]
        if any(one.shape[1] != runs.curves.shape[1] for one in curves):
            raise ContextCliffError(
                f"The search {name} has curves of another length than {runs.curves.shape[1] - 1} "
                "steps; search again with the steps of the study."
            )
        mean_curves = np.array([one.mean(axis=0) for one in curves])
        apart = of_model[shared] / n[shared] - mean_curves[:, -1]
        means = ClusterMeans(apart, runs.benchmark_of_cluster[shared])
        low, high = means.interval(settings.confidence)
        made.append(
            SearchComparison(
                name=name,
                n_clusters=len(shared),
                regret=float(mean_curves[:, -1].mean()),
                area=float(np.mean([area_under_curve(one) for one in mean_curves])),
                difference=means.mean,
                ci_low=low,
                ci_high=high,
                curve=_curve(None, name, mean_curves, shared, runs, settings),
            )
        )
    return made


def cells_of(runs: Runs) -> list[Cell]:
    """Return each combination of levels, in the order of the plan."""
    signatures = np.array([run.axes.signature for run in runs.planned], dtype=str)
    made = []
    for signature in dict.fromkeys(signatures.tolist()):
        rows = np.flatnonzero(signatures == signature)
        made.append(
            Cell(
                signature=signature,
                levels={axis: str(column[rows[0]]) for axis, column in runs.levels.items()},
                n_runs=len(rows),
                means={name: _mean(runs.outcome(name)[rows]) for name in OUTCOMES},
            )
        )
    return made


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


EFFECT, POWER = 0.2, 0.8


@dataclass(frozen=True, slots=True)
class Components:
    """SDs of the difference of a pair: between benchmark-seeds, and between pairs of one."""

    seed: float
    pair: float | None
    pairs: float
    """Mean pairs of a benchmark-seed."""

    @property
    def variance(self) -> float:
        """Of the mean difference of one benchmark-seed."""
        return self.seed**2 + (self.pair or 0.0) ** 2 / self.pairs


def components_of(changes: Changes) -> Components | None:
    """Return the components by the analysis of variance; None with fewer than two clusters.

    With single pairs the two are one, and ``pair`` is None.
    """
    change, clusters = changes.change, len(changes.stratum)
    if clusters < 2:
        return None
    means = changes.means(change)
    pairs = len(change) / clusters
    of_mean = means.standard_error**2 * clusters
    degrees = len(change) - clusters
    if not degrees:
        return Components(math.sqrt(of_mean), None, pairs)
    within = float(((change - means.values[changes.cluster]) ** 2).sum()) / degrees
    return Components(math.sqrt(max(of_mean - within / pairs, 0.0)), math.sqrt(within), pairs)


def plan_of(
    runs: Runs, comparisons: Sequence[Comparison], settings: AnalysisSettings
) -> list[Plan]:
    """Return the seeds that each tested effect on the regret needs; none where nothing varies."""
    tested = [one for one in comparisons if not one.is_start]
    level = SHARES["regret"] * (1.0 - settings.confidence) / max(len(tested), 1)
    made = []
    for one in tested:
        changes = changes_of(runs, one, "regret")
        components = components_of(changes) if changes else None
        if changes is None or components is None or not changes.run_sd():
            continue
        spread = changes.run_sd()
        benchmarks = len(np.unique(changes.stratum))
        made.append(
            Plan(
                axis=one.axis,
                level=one.level,
                reference=one.reference,
                effect=EFFECT,
                power=POWER,
                significance=level,
                run_sd=spread,
                seed_sd=components.seed,
                pair_sd=components.pair,
                pairs_per_seed=components.pairs,
                seeds=-(-len(changes.stratum) // benchmarks),
                seeds_needed=units_needed(
                    EFFECT * spread,
                    components.variance,
                    level,
                    POWER,
                    strata=benchmarks,
                    pairs=components.pairs,
                ),
            )
        )
    return made


_OUTCOMES: dict[OutcomeName, str] = {
    "regret": "regret",
    "area": "area under the curve of regret",
    "churn": "distance from step to step",
    "stagnation": "share of steps that repeat the step before",
    "oscillation": "share of steps that return to an earlier configuration",
    "novelty": "share of steps with a new configuration",
    "clamped_changes": "share of changes that met a bound",
    "unparsable_share": "share of replies that cannot be parsed",
    "fallback_share": "share of steps whose reply set nothing",
}
_AXES = {
    "task": "the text about the task",
    "metric": "the text about the metric",
    "resources": "the resources",
    "bounds": "the bounds",
    "direction": "the direction of the score",
}


def change_in_words(effect: AxisEffect) -> str:
    """What differs within a pair, as the subject of a sentence."""
    if effect.axis == "history":
        earlier = "no" if effect.reference == "0" else effect.reference
        return f"Listing {effect.level} earlier steps instead of {earlier}"
    if effect.axis == "base":
        return f"Going on from the {effect.level} configuration instead of the {effect.reference}"
    if effect.axis == "start":
        return f"Beginning with a {effect.level} start instead of a {effect.reference} one"
    what = _AXES[effect.axis]
    if effect.contrast == "length":
        return f"Another text as long as {what} instead of none"
    if effect.contrast == "content":
        return f"Showing {what} instead of another text as long"
    return f"Showing {what}"


def effect_sentence(effect: AxisEffect, margin: float) -> str:
    """Describe an effect on regret or area with its verdict; on behaviour only if significant."""
    subject, name = change_in_words(effect), _OUTCOMES[effect.outcome]
    if effect.difference is None:
        return f"{subject}: no two runs could be compared."
    by = f"{difference(effect.difference)} [{_interval(effect)}]"
    if effect.verdict in ("better", "worse", "higher", "lower"):
        less = effect.verdict in ("better", "lower")
        tested = f"p {effect.p_holm:.3f} after Holm" if effect.p_holm is not None else ""
        return f"{subject} {'lowers' if less else 'raises'} the {name}: {by}, {tested}."
    if effect.verdict == "no_benefit":
        return (
            f"{subject} does not help: a benefit of {margin:g} or more is excluded ({name} {by}, "
            f"limit of the benefit {score(effect.excluded)})."
        )
    return (
        f"{subject}: undecided; neither an effect on the {name} nor the absence of a benefit of "
        f"{margin:g} is shown ({by})."
    )


def plan_sentence(plan: Sequence[Plan], undecided: Sequence[AxisEffect]) -> str | None:
    """Seeds that would show every undecided effect of .2 SD; None where nothing is undecided."""
    open_ones = {(one.axis, one.level, one.reference) for one in undecided}
    rows = [one for one in plan if (one.axis, one.level, one.reference) in open_ones]
    if not rows:
        return None
    first = rows[0]
    what = f"an effect of {first.effect:g} SD of the regret with power {first.power:g}"
    if any(one.seeds_needed is None for one in rows):
        return f"To show {what} where it is undecided, more than 10,000 seeds would be needed."
    most = max(one.seeds_needed or 0 for one in rows)
    return (
        f"To show {what} where it is undecided, up to {most:,} seeds a benchmark are needed; this "
        f"study has {first.seeds:,}."
    )


def search_sentence(regret: float, searches: Sequence[SearchComparison]) -> str | None:
    """The model next to searches without one."""
    if not searches:
        return None
    others = ", ".join(f"{one.name.replace('_', ' ')} {score(one.regret)}" for one in searches)
    return (
        f"Over all runs the model leaves a regret of {score(regret)}; searches without a model on "
        f"the same splits, starts and steps: {others}."
    )


def _interval(effect: AxisEffect) -> str:
    if effect.ci_low is None:
        return "no interval"
    return f"{difference(effect.ci_low)}, {difference(effect.ci_high)}"


def analyse_model(
    records: pd.DataFrame,
    section: VisibilitySection,
    *,
    settings: AnalysisSettings | None = None,
    context: ProfileContext | None = None,
    baselines: BaselineCurves | None = None,
) -> VisibilityResult:
    """Return what the records of one model say of what it was shown. No row order matters.

    Args:
        records: `tables.VISIBILITY_RECORDS` of one model, one row a step.
        settings: confidence and seed.
        context: names of the model, study and campaign; warnings to repeat.
        baselines: regret by step of searches without a model, by name, then benchmark and seed.

    Raises:
        ContextCliffError: a step has two records, or a search another number of steps.
    """
    settings = settings or AnalysisSettings()
    context = context or ProfileContext(model="model")
    runs = runs_of_records(records, section)
    effects = effects_of(
        runs, comparisons_of(section.levels), section.benchmarks, section.margin, settings
    )
    searches = searches_of(runs, baselines or {}, settings)
    plan = plan_of(runs, comparisons_of(section.levels), settings)
    of_regret = [one for one in effects if one.outcome == "regret" and one.axis != "start"]
    behaviour = [one for one in effects if one.outcome not in PERFORMANCE]
    headline = [effect_sentence(one, section.margin) for one in of_regret]
    headline += [
        effect_sentence(one, section.margin)
        for one in behaviour
        if one.verdict in ("higher", "lower")
    ]
    undecided = [one for one in of_regret if one.verdict == "undecided"]
    regret = float(runs.outcome("regret").mean()) if runs.planned else float("nan")
    more = [plan_sentence(plan, undecided), search_sentence(regret, searches)]
    return VisibilityResult(
        schema_version="1.0",
        **context.names,
        benchmarks=list(section.benchmarks),
        steps=section.steps,
        seeds=list(range(section.first_seed, section.first_seed + section.seeds)),
        levels=ordered_levels(section.levels),
        n_runs=len(runs.planned),
        missing=list(runs.missing),
        confidence=settings.confidence,
        margin=section.margin,
        seed=settings.seed,
        verdict=verdict_of(of_regret),
        headline=[*headline, *(one for one in more if one)],
        effects=effects,
        interactions=interactions_of(runs, widest_comparisons(section.levels), settings),
        plan=plan,
        curves=curves_of(runs, ordered_levels(section.levels), settings),
        searches=searches,
        cells=cells_of(runs),
        warnings=[*context.warnings, *_warnings(runs, section)],
    )


def verdict_of(effects: Sequence[AxisEffect]) -> VisibilityVerdict:
    """Return the verdict of the effects on the regret of the axes that show more.

    `helps`, `harms`, `mixed`: some are significant; `no_benefit`: of all of them a benefit as large
    as the margin is excluded.
    """
    verdicts = {one.verdict for one in effects if one.axis in VISIBLE and one.contrast != "length"}
    if {"better", "worse"} <= verdicts:
        return "mixed"
    if "better" in verdicts:
        return "helps"
    if "worse" in verdicts:
        return "harms"
    return "no_benefit" if verdicts == {"no_benefit"} else "undecided"


def _warnings(runs: Runs, section: VisibilitySection) -> list[str]:
    made = []
    if runs.missing:
        planned = len(runs.missing) + len(runs.planned)
        made.append(
            f"{len(runs.missing):,} of {planned:,} runs have a step without an answer; they and "
            "their pairs are in no mean and no test."
        )
    if runs.unplanned:
        made.append(
            f"{runs.unplanned:,} runs with records are none of the study; they are left out."
        )
    if section.seeds < 2 and runs.planned:
        made.append("A single seed has no interval and no test; ask for two or more.")
    if repeated := _repeated(runs):
        alike, groups = repeated
        made.append(
            f"In {alike:,} of {groups:,} combinations of benchmark and levels some seeds have the "
            "same configurations, step by step: there they differ in their split alone, and "
            "repeat one behaviour of the model."
        )
    same, pairs = _same_in_pairs(runs, section)
    if same and same >= pairs / 2:
        made.append(
            f"In {same:,} of {pairs:,} pairs both runs tried the same configurations, step by "
            "step: there the model does the same whatever it is shown."
        )
    return made


def _same_in_pairs(runs: Runs, section: VisibilitySection) -> tuple[int, int]:
    """Pairs of which both runs took the same path, and all pairs that differ in what is shown."""
    same = pairs = 0
    for one in comparisons_of(section.levels):
        if one.axis in VISIBLE:
            level, reference = pairs_of(runs, one)
            pairs += len(level)
            same += sum(
                runs.paths[a] == runs.paths[b]
                for a, b in zip(level.tolist(), reference.tolist(), strict=True)
            )
    return same, pairs


def _repeated(runs: Runs) -> tuple[int, int] | None:
    """Combinations of which two seeds took the same path, and all with several seeds."""
    by_group: dict[tuple[str, str], list[str]] = {}
    for run, path in zip(runs.planned, runs.paths, strict=True):
        by_group.setdefault((run.benchmark, run.axes.signature), []).append(path)
    several = [paths for paths in by_group.values() if len(paths) > 1]
    alike = sum(len(set(paths)) < len(paths) for paths in several)
    return (alike, len(several)) if alike else None


def interactions_of(
    runs: Runs, comparisons: Sequence[Comparison], settings: AnalysisSettings
) -> list[Interaction]:
    """Return the difference of differences of each two axes, one comparison an axis."""
    raw = [
        _interaction(runs, one, other, settings, place)
        for place, (one, other) in enumerate(combinations(comparisons, 2))
    ]
    adjusted = holm([one.p_value for one in raw])
    return [replace(one, p_holm=p) for one, p in zip(raw, adjusted, strict=True)]


def _interaction(
    runs: Runs, one: Comparison, other: Comparison, settings: AnalysisSettings, place: int
) -> Interaction:
    both, other_only, one_only, neither = fours_of(runs, one, other)
    regret = runs.outcome("regret")
    clusters, cluster = np.unique(runs.cluster[both], return_inverse=True)
    # Halved, a difference of differences is one of two means again, within -1..1.
    changes = Changes(
        0.5 * (regret[both] - regret[other_only]),
        0.5 * (regret[one_only] - regret[neither]),
        cluster,
        runs.benchmark_of_cluster[clusters],
    )
    difference, low, high, p_value = None, None, None, None
    if len(both):
        means = changes.means(changes.change)
        difference = means.mean
        low, high = means.interval(settings.confidence)
    if len(clusters) > 1:
        rng = np.random.default_rng((settings.seed, 32, place))
        p_value = studentized_flips(changes.change, cluster, changes.stratum, FLIPS, rng)[0]
    return Interaction(
        axis=one.axis,
        level=one.level,
        reference=one.reference,
        other=other.axis,
        other_level=other.level,
        other_reference=other.reference,
        n_fours=len(both),
        n_clusters=len(clusters),
        difference=None if difference is None else 2.0 * difference,
        ci_low=None if low is None else 2.0 * low,
        ci_high=None if high is None else 2.0 * high,
        p_value=p_value,
        p_holm=None,
    )
