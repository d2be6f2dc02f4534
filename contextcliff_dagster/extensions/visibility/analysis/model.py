"""Analysis of one model's records: the effects of the information it was shown.

Covers runs, regret curves, the number of seeds that a study needs, and sentences on the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.contrast import ClusterMeans, studentized_flips, units_needed
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
    matched_runs,
    ordered_levels,
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
    """Return one model's runs from rows of `tables.VISIBILITY_RECORDS` in any order.

    Incomplete runs, in which some step has no record with an answer, are listed as missing. Raise
    ContextCliffError if a step has two records.
    """
    by_run = _rows_by_run(records)
    complete, outcomes, curves, paths, missing = [], [], [], [], []
    spaces = {name: task_named(name).space for name in section.benchmarks}
    for run in runs_of(section):
        rows = [row for row in by_run.pop(run.key, []) if _answered(row)]
        if [row["step"] for row in rows] != list(range(1, section.steps + 1)):
            missing.append(MissingRun(run=run.key, steps=len(rows)))
            continue
        curve = np.array([rows[0]["start_regret"], *(row["regret"] for row in rows)], float)
        complete.append(run)
        curves.append(curve)
        paths.append("\n".join([rows[0]["start_config"], *(row["config"] for row in rows)]))
        outcomes.append([curve[-1], area_under_curve(curve), *_behaviour(spaces, run, rows)])
    return Runs(
        planned=tuple(complete),
        outcomes=np.array(outcomes, float).reshape(len(complete), len(OUTCOMES)),
        curves=np.array(curves, float).reshape(len(complete), section.steps + 1),
        paths=tuple(paths),
        missing=tuple(missing),
        unplanned=len(by_run),
    )


_COLUMNS = (*("step", "failure", *STEP_COLUMNS, "regret", "start_config", "start_regret"),)


def _rows_by_run(records: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    by_run: dict[str, list[dict[str, Any]]] = {}
    ordered = records.sort_values(["run", "step"], kind="stable")
    columns = zip(*(ordered[name].tolist() for name in _COLUMNS), strict=True)
    for name, row in zip(ordered["run"].tolist(), columns, strict=True):
        rows = by_run.setdefault(name, [])
        rows.append(dict(zip(_COLUMNS, row, strict=True)))
        if len(rows) > 1 and rows[-2]["step"] == rows[-1]["step"]:
            raise ContextCliffError(f"Step {row[0]} of run {name} has two records; score again.")
    return by_run


def _answered(row: Mapping[str, Any]) -> bool:
    unscored = row["failure"] in {str(tag) for tag in UNSCORED_TAGS}
    # Both regrets are unknown in a run without a landscape, which is whole all the same.
    return not unscored and _known(row["regret"]) == _known(row["start_regret"])


def _known(value: Any) -> bool:
    return value is not None and bool(value == value)


def _behaviour(
    spaces: Mapping[str, Space], run: PlannedRun, rows: Sequence[Mapping[str, Any]]
) -> list[float | None]:
    """Return the run's behaviour outcomes, which come after regret and area in `OUTCOMES`."""
    behaviour = behaviour_of(spaces[run.benchmark], [start_of(rows[0]), *map(step_of, rows)])
    return [getattr(behaviour, name) for name in OUTCOMES[2:]]


BaselineCurves: TypeAlias = "Mapping[str, Mapping[tuple[str, int], ArrayLike]]"
"""Map a search, then (benchmark, seed), to one or more rows of regret by step, start first."""


def curves_of(
    runs: Runs, levels: Mapping[str, Sequence[str]], settings: AnalysisSettings
) -> list[Curve]:
    """Return the curve of all runs, then one for each level of each varying axis.

    There is none without a landscape.
    """
    groups: list[tuple[str | None, str, Bools]] = [(None, "all", np.ones(len(runs.planned), bool))]
    groups += [
        (axis, level, runs.levels[axis] == level)
        for axis, values in levels.items()
        for level in values
        if len(values) > 1
    ]
    return [
        _curve(axis, level, runs.curves[inside], runs.cluster[inside], runs, settings)
        for axis, level, inside in groups
        if inside.any() and np.isfinite(runs.curves).all()
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
    """Compare the model with each search over the benchmark-seeds that they share.

    Raise ContextCliffError if a curve has another number of steps than the runs.
    """
    clusters = list(dict.fromkeys((run.benchmark, run.seed) for run in runs.planned))
    n = np.bincount(runs.cluster, minlength=len(clusters))
    of_model = np.bincount(runs.cluster, weights=runs.outcome("regret"), minlength=len(clusters))
    comparisons = []
    for name, rows in baselines.items():
        places = np.array([place for place, key in enumerate(clusters) if key in rows], np.int64)
        if not len(places):
            continue
        curves = [np.atleast_2d(np.asarray(rows[clusters[k]], float)) for k in places]
        if any(curve.shape[1] != runs.curves.shape[1] for curve in curves):
            raise ContextCliffError(
                f"The curves of search {name} do not have {runs.curves.shape[1] - 1} steps; search "
                "again with the steps of the study."
            )
        mean_curves = np.array([curve.mean(axis=0) for curve in curves])
        differences = of_model[places] / n[places] - mean_curves[:, -1]
        means = ClusterMeans(differences, runs.benchmark_of_cluster[places])
        low, high = means.interval(settings.confidence)
        comparisons.append(
            SearchComparison(
                name=name,
                n_clusters=len(places),
                regret=float(mean_curves[:, -1].mean()),
                area=float(np.mean([area_under_curve(curve) for curve in mean_curves])),
                difference=means.mean,
                ci_low=low,
                ci_high=high,
                curve=_curve(None, name, mean_curves, places, runs, settings),
            )
        )
    return comparisons


def cells_of(runs: Runs) -> list[Cell]:
    """Return a summary of each combination of levels, in the order of the plan."""
    signatures = np.array([run.axes.signature for run in runs.planned], dtype=str)
    cells = []
    for signature in dict.fromkeys(signatures.tolist()):
        rows = np.flatnonzero(signatures == signature)
        cells.append(
            Cell(
                signature=signature,
                levels={axis: str(column[rows[0]]) for axis, column in runs.levels.items()},
                n_runs=len(rows),
                means={name: _mean(runs.outcome(name)[rows]) for name in OUTCOMES},
            )
        )
    return cells


def _mean(values: Floats) -> float | None:
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else None


EFFECT, POWER = 0.2, 0.8


@dataclass(frozen=True, slots=True)
class Components:
    """SDs of paired differences between benchmark-seeds and within a benchmark-seed."""

    seed: float
    pair: float | None
    pairs: float
    """Mean number of pairs per benchmark-seed."""

    @property
    def variance(self) -> float:
        """Return the variance of a benchmark-seed's mean difference."""
        return self.seed**2 + (self.pair or 0.0) ** 2 / self.pairs


def components_of(changes: Changes) -> Components | None:
    """Estimate the components by analysis of variance; None with fewer than two clusters.

    With one pair per cluster the two SDs cannot be separated, and ``pair`` is None.
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
    """Return the seeds needed to detect each tested effect on regret; empty if nothing varies."""
    comparisons_tested = [one for one in comparisons if one.axis != "start"]
    level = SHARES["regret"] * (1.0 - settings.confidence) / max(len(comparisons_tested), 1)
    plan = []
    for comparison in comparisons_tested:
        changes = changes_of(runs, comparison, "regret")
        components = components_of(changes) if changes else None
        if changes is None or components is None or not changes.run_sd():
            continue
        spread = changes.run_sd()
        benchmarks = len(np.unique(changes.stratum))
        plan.append(
            Plan(
                axis=comparison.axis,
                level=comparison.level,
                reference=comparison.reference,
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
    return plan


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
    """Return the effect's comparison as a phrase that can be the subject of a sentence."""
    if effect.axis == "history":
        earlier = "no" if effect.reference == "0" else effect.reference
        return f"Listing {effect.level} earlier steps instead of {earlier}"
    if effect.axis == "base":
        return f"Continuing from the {effect.level} configuration instead of the {effect.reference}"
    if effect.axis == "start":
        return f"Beginning with a {effect.level} start instead of a {effect.reference} one"
    text = _AXES[effect.axis]
    if effect.contrast == "length":
        return f"Another text of the length of {text} instead of none"
    if effect.contrast == "content":
        return f"Showing {text} instead of another text of that length"
    return f"Showing {text}"


def effect_sentence(effect: AxisEffect, margin: float) -> str:
    """Describe an effect and its verdict. An effect on behaviour must be significant."""
    subject, name = change_in_words(effect), _OUTCOMES[effect.outcome]
    if effect.difference is None:
        return f"{subject}: no two runs could be compared."
    by = f"{difference(effect.difference)} [{_interval(effect)}]"
    if effect.verdict in ("better", "worse", "higher", "lower"):
        less = effect.verdict in ("better", "lower")
        test = f"p {effect.p_holm:.3f} after Holm" if effect.p_holm is not None else ""
        return f"{subject} {'lowers' if less else 'raises'} the {name}: {by}, {test}."
    if effect.verdict == "no_benefit":
        return (
            f"{subject} does not help: a benefit of {margin:g} or more is ruled out ({name} {by}, "
            f"limit of the benefit {score(effect.excluded)})."
        )
    return (
        f"{subject}: undecided; neither an effect on the {name} nor the absence of a benefit of "
        f"{margin:g} is shown ({by})."
    )


def plan_sentence(plan: Sequence[Plan], undecided: Sequence[AxisEffect]) -> str | None:
    """Return a sentence on the seeds that undecided effects need; None without any."""
    open_ones = {(effect.axis, effect.level, effect.reference) for effect in undecided}
    rows = [entry for entry in plan if (entry.axis, entry.level, entry.reference) in open_ones]
    if not rows:
        return None
    first = rows[0]
    goal = f"an effect of {first.effect:g} SD of the regret with power {first.power:g}"
    if any(row.seeds_needed is None for row in rows):
        return f"To show {goal} where it is undecided, more than 10,000 seeds would be needed."
    seeds = max(row.seeds_needed or 0 for row in rows)
    return (
        f"To show {goal} where it is undecided, up to {seeds:,} seeds per benchmark are needed; "
        f"this study has {first.seeds:,}."
    )


def search_sentence(regret: float, searches: Sequence[SearchComparison]) -> str | None:
    """Return a sentence that compares the model with searches without a model, if there are any."""
    if not searches:
        return None
    names = ", ".join(f"{s.name.replace('_', ' ')} {score(s.regret)}" for s in searches)
    return (
        f"Over all runs the model leaves a regret of {score(regret)}; searches without a model on "
        f"the same splits, starts and steps: {names}."
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
    """Return the result for one model's records, independent of row order.

    Args:
        records: one model's `tables.VISIBILITY_RECORDS`, one row per step.
        settings: the confidence and the resampling seed.
        context: names of the model, study and campaign, and warnings to include.
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
    of_regret = [e for e in effects if e.outcome == "regret" and e.axis != "start"]
    behaviour = [effect for effect in effects if effect.outcome not in PERFORMANCE]
    headline = [effect_sentence(effect, section.margin) for effect in of_regret]
    headline += [
        effect_sentence(effect, section.margin)
        for effect in behaviour
        if effect.verdict in ("higher", "lower")
    ]
    undecided = [effect for effect in of_regret if effect.verdict == "undecided"]
    regret = float(runs.outcome("regret").mean()) if runs.planned else float("nan")
    sentences = [plan_sentence(plan, undecided), search_sentence(regret, searches)]
    return VisibilityResult(
        schema_version="1.0",
        **context.names,
        benchmarks=list(section.benchmarks),
        steps=section.steps,
        seeds=list(section.seed_numbers),
        levels=ordered_levels(section.levels),
        n_runs=len(runs.planned),
        missing=list(runs.missing),
        confidence=settings.confidence,
        margin=section.margin,
        seed=settings.seed,
        verdict=verdict_of(of_regret),
        headline=[*headline, *(sentence for sentence in sentences if sentence)],
        effects=effects,
        interactions=interactions_of(runs, widest_comparisons(section.levels), settings),
        plan=plan,
        curves=curves_of(runs, ordered_levels(section.levels), settings),
        searches=searches,
        cells=cells_of(runs),
        warnings=[*context.warnings, *_warnings(runs, section)],
    )


def verdict_of(effects: Sequence[AxisEffect]) -> VisibilityVerdict:
    """Return the overall verdict from the effects on regret of the axes that show more.

    `helps`, `harms`, `mixed`: some effects are significant; `no_benefit`: a benefit of the margin
    is ruled out for all of them.
    """
    verdicts = {e.verdict for e in effects if e.axis in VISIBLE and e.contrast != "length"}
    if {"better", "worse"} <= verdicts:
        return "mixed"
    if "better" in verdicts:
        return "helps"
    if "worse" in verdicts:
        return "harms"
    return "no_benefit" if verdicts == {"no_benefit"} else "undecided"


def headroom_notes(section: VisibilitySection, without: Sequence[tuple[str, int]]) -> list[str]:
    """Return sentences on seeds that were skipped, and on splits ``without`` headroom."""
    notes = []
    why = "no configuration of the landscape beats the start by more than noise"
    if section.skipped_seeds:
        seeds = ", ".join(map(str, section.skipped_seeds))
        notes.append(f"Skipped seeds: {seeds}; nothing could be gained on their splits ({why}).")
    if without:
        which = (
            "these splits"
            if len(without) == len(section.benchmarks) * section.seeds
            else "the splits of "
            + ", ".join(f"{benchmark} seed {seed}" for benchmark, seed in without)
        )
        notes.append(f"Nothing could be gained on {which}: {why}.")
    return notes


def _warnings(runs: Runs, section: VisibilitySection) -> list[str]:
    made = []
    if runs.missing:
        total = len(runs.missing) + len(runs.planned)
        made.append(
            f"{len(runs.missing):,} of {total:,} runs have a step without an answer; they and "
            "their pairs are left out of all means and tests."
        )
    if runs.unplanned:
        made.append(f"{runs.unplanned:,} recorded runs are not part of the study and are left out.")
    if section.seeds < 2 and runs.planned:
        made.append("A single seed allows no interval and no test; use two or more.")
    if repeats := _repeated(runs):
        alike, groups = repeats
        made.append(
            f"In {alike:,} of {groups:,} combinations of benchmark and levels some seeds have the "
            "same configurations, step by step: these differ only in their split and "
            "repeat one behaviour of the model."
        )
    n_same, pairs = _same_in_pairs(runs, section)
    if n_same and n_same >= pairs / 2:
        made.append(
            f"In {n_same:,} of {pairs:,} pairs both runs tried the same configurations, step by "
            "step: there the model ignores what it is shown."
        )
    return made


def _same_in_pairs(runs: Runs, section: VisibilitySection) -> tuple[int, int]:
    """Count the pairs that differ in the information shown: those with equal paths, and all."""
    same = pairs = 0
    for comparison in comparisons_of(section.levels):
        if comparison.axis in VISIBLE:
            level, reference = matched_runs(runs, comparison)
            pairs += len(level)
            same += sum(
                runs.paths[a] == runs.paths[b]
                for a, b in zip(level.tolist(), reference.tolist(), strict=True)
            )
    return same, pairs


def _repeated(runs: Runs) -> tuple[int, int] | None:
    """Count the combinations with several seeds: those with equal paths (None if 0), and all."""
    by_group: dict[tuple[str, str], list[str]] = {}
    for run, path in zip(runs.planned, runs.paths, strict=True):
        by_group.setdefault((run.benchmark, run.axes.signature), []).append(path)
    several = [paths for paths in by_group.values() if len(paths) > 1]
    alike = sum(len(set(paths)) < len(paths) for paths in several)
    return (alike, len(several)) if alike else None


def interactions_of(
    runs: Runs, comparisons: Sequence[Comparison], settings: AnalysisSettings
) -> list[Interaction]:
    """Return the difference of differences for each two comparisons, which differ in axis."""
    raw = [
        _interaction(runs, one, other, settings, place)
        for place, (one, other) in enumerate(combinations(comparisons, 2))
    ]
    adjusted = holm([interaction.p_value for interaction in raw])
    return [replace(interaction, p_holm=p) for interaction, p in zip(raw, adjusted, strict=True)]


def _interaction(
    runs: Runs, one: Comparison, other: Comparison, settings: AnalysisSettings, place: int
) -> Interaction:
    both_levels, other_only, one_only, neither = matched_runs(runs, one, other)
    regret = runs.outcome("regret")
    clusters, cluster = np.unique(runs.cluster[both_levels], return_inverse=True)
    # Halved, a difference of differences is one of two means again, within -1..1.
    changes = Changes(
        0.5 * (regret[both_levels] - regret[other_only]),
        0.5 * (regret[one_only] - regret[neither]),
        cluster,
        runs.benchmark_of_cluster[clusters],
    )
    difference, low, high, p_value = None, None, None, None
    if len(both_levels):
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
        n_fours=len(both_levels),
        n_clusters=len(clusters),
        difference=None if difference is None else 2.0 * difference,
        ci_low=None if low is None else 2.0 * low,
        ci_high=None if high is None else 2.0 * high,
        p_value=p_value,
        p_holm=None,
    )
