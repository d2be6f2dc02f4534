"""The records of one model to its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.profile.context import ProfileContext
from contextcliff_dagster.analysis.records.settings import AnalysisSettings
from contextcliff_dagster.analysis.statistics.sign_flips import holm
from contextcliff_dagster.extensions.visibility.analysis.contrasts import (
    VISIBLE,
    Comparison,
    comparisons_of,
    fours_of,
    ordered_levels,
    pairs_of,
    widest_comparisons,
)
from contextcliff_dagster.extensions.visibility.analysis.curves import (
    BaselineCurves,
    cells_of,
    curves_of,
    searches_of,
)
from contextcliff_dagster.extensions.visibility.analysis.effects import (
    FLIPS,
    PERFORMANCE,
    Changes,
    effects_of,
)
from contextcliff_dagster.extensions.visibility.analysis.planning import plan_of
from contextcliff_dagster.extensions.visibility.analysis.runs import Runs, runs_of_records
from contextcliff_dagster.extensions.visibility.analysis.studentized_flips import studentized_flips
from contextcliff_dagster.extensions.visibility.analysis.wording import (
    effect_sentence,
    plan_sentence,
    search_sentence,
)
from contextcliff_dagster.extensions.visibility.results import (
    AxisEffect,
    Interaction,
    VisibilityResult,
    VisibilityVerdict,
)

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.extensions.visibility.section import VisibilitySection


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
