"""Effects of each axis on run outcomes: pairs, clusters, intervals, flip tests, verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.contrast import ClusterMeans, studentized_flips
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts.results.json_form import nulls
from contextcliff_dagster.extensions.visibility.results import (
    OUTCOMES,
    AxisEffect,
    BenchmarkEffect,
    Contrast,
    EffectVerdict,
    MissingRun,
    OutcomeName,
)
from contextcliff_dagster.extensions.visibility.section import AXES, Level, PlannedRun

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Runs:
    """Complete runs, in the order of the plan.

    Attributes:
        planned: benchmark, seed and axes of each run (N).
        outcomes: `results.OUTCOMES` of each run (N, O), nan if missing.
        curves: regret after each step, the start first (N, 1 + steps).
        paths: the configurations of each run as text, to detect equal runs (N).
        missing: planned runs with an unanswered step.
        unplanned: number of runs with records that are not in the plan.
    """

    planned: tuple[PlannedRun, ...]
    outcomes: Floats
    curves: Floats
    paths: tuple[str, ...]
    missing: tuple[MissingRun, ...]
    unplanned: int

    @cached_property
    def levels(self) -> Mapping[str, np.ndarray]:
        """Return the level of each run as text (N), by axis."""
        return {
            axis: np.array([str(getattr(run.axes, axis)) for run in self.planned], dtype=str)
            for axis in AXES
        }

    @cached_property
    def benchmark(self) -> np.ndarray:
        """Return the benchmark of each run (N)."""
        return np.array([run.benchmark for run in self.planned], dtype=str)

    @cached_property
    def cluster(self) -> Ints:
        """Return the index of each run's benchmark-seed (N), in plan order."""
        return _numbered([(run.benchmark, run.seed) for run in self.planned])

    @cached_property
    def benchmark_of_cluster(self) -> Ints:
        """Return, for each benchmark-seed, the index of its benchmark (C)."""
        number = _numbered([run.benchmark for run in self.planned])
        of_cluster = np.zeros(self.cluster.max(initial=-1) + 1, np.int64)
        of_cluster[self.cluster] = number
        return of_cluster

    def outcome(self, name: OutcomeName) -> Floats:
        """Return one outcome of each run (N)."""
        column: Floats = self.outcomes[:, OUTCOMES.index(name)]
        return column


_TEXTS: tuple[tuple[Contrast, str, str], ...] = (
    ("shown", "shown", "hidden"),
    ("length", "placebo", "hidden"),
    ("content", "shown", "placebo"),
)
_ORDER = ("hidden", "placebo", "shown", "last", "best", "default", "low", "neutral", "high")
VISIBLE = AXES[: AXES.index("base")]
"""Axes that vary the information shown rather than the course of a run."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A level of an axis and its reference level."""

    axis: str
    level: str
    reference: str
    contrast: Contrast


def ordered_levels(levels: Mapping[str, Sequence[Level]]) -> dict[str, list[str]]:
    """Return the levels of each axis as text, from the least to the most informative."""
    return {
        axis: [str(level) for level in sorted(given, key=_rank)]  # a history by its number of steps
        for axis, given in levels.items()
    }


def _rank(level: Level) -> int:
    return level if isinstance(level, int) else _ORDER.index(level)


def comparisons_of(levels: Mapping[str, Sequence[Level]]) -> list[Comparison]:
    """Return every comparison of a study, axis by axis."""
    comparisons = []
    for axis, values in ordered_levels(levels).items():
        if set(values) <= {"hidden", "placebo", "shown"}:
            texts = [text for text in _TEXTS if {text[1], text[2]} <= set(values)]
            comparisons += [Comparison(axis, level, base, name) for name, level, base in texts]
        else:
            comparisons += [Comparison(axis, level, values[0], "level") for level in values[1:]]
    return comparisons


def widest_comparisons(levels: Mapping[str, Sequence[Level]]) -> list[Comparison]:
    """Return one comparison per varying axis: its last level compared with its first."""
    varied = {axis: values for axis, values in ordered_levels(levels).items() if len(values) > 1}
    ends = {axis: [values[0], values[-1]] for axis, values in varied.items()}
    every = comparisons_of(levels)
    return [pair for pair in every if [pair.reference, pair.level] == ends[pair.axis]]


def matched_runs(runs: Runs, *comparisons: Comparison) -> tuple[Ints, ...]:
    """Return the runs at each combination of levels, all of them equal in all else (N each).

    Of one comparison: those at the level and at the reference. Of two: those with no reference, the
    first one's, the second one's, both.
    """
    varied = {comparison.axis for comparison in comparisons}
    fixed = [runs.levels[axis] for axis in AXES if axis not in varied]
    others = list(zip(runs.cluster.tolist(), *(column.tolist() for column in fixed), strict=True))
    corners = []
    for number in range(2 ** len(comparisons)):
        inside = np.ones(len(runs.planned), bool)
        for place, pair in enumerate(comparisons):
            level = pair.reference if number >> place & 1 else pair.level
            inside &= runs.levels[pair.axis] == level
        corners.append({others[row]: row for row in np.flatnonzero(inside).tolist()})
    keys = [key for key in corners[0] if all(key in corner for corner in corners)]
    return tuple(np.array([corner[key] for key in keys], np.int64) for corner in corners)


FLIPS = 4_999
ROOM = 2.0
"""Smallest regret of the reference, in margins, at which a verdict of no benefit is meaningful."""
PERFORMANCE: tuple[OutcomeName, ...] = ("regret", "area")
SHARES = {"regret": 0.5, "area": 0.25, "behaviour": 0.25}
"""Fractions of the error rate allotted to effects on regret, on area and on behaviour."""


@dataclass(frozen=True, eq=False)
class Changes:
    """The values of one outcome in pairs of runs, both of which have it.

    ``level`` and ``reference`` are the values (P); ``cluster`` is the dense index of each pair's
    benchmark-seed, ``stratum`` the benchmark of each benchmark-seed (C).
    """

    level: Floats
    reference: Floats
    cluster: Ints
    stratum: Ints

    @property
    def change(self) -> Floats:
        """Return level minus reference (P), with differences due to rounding set to 0."""
        change = self.level - self.reference
        return np.where(np.abs(change) < 1e-12, 0.0, change)

    def means(self, of: Floats) -> ClusterMeans:
        """Average ``of``, which has one value per pair (P), over each benchmark-seed."""
        n = np.bincount(self.cluster, minlength=len(self.stratum))
        sums = np.bincount(self.cluster, weights=of, minlength=len(self.stratum))
        return ClusterMeans(sums / n, self.stratum)

    def run_sd(self) -> float:
        """Return the pooled SD between runs of the same benchmark and level; 0 for single runs."""
        benchmark = self.stratum[self.cluster]
        squares, degrees = 0.0, 0
        for values in (self.level, self.reference):
            for name in np.unique(benchmark):
                of_benchmark = values[benchmark == name]
                squares += float(((of_benchmark - of_benchmark.mean()) ** 2).sum())
                degrees += len(of_benchmark) - 1
        spread = math.sqrt(squares / degrees) if degrees else 0.0
        return spread if spread > 1e-12 else 0.0


def changes_of(runs: Runs, comparison: Comparison, outcome: OutcomeName) -> Changes | None:
    """Return the outcome in the pairs of which both runs have it; None without such pairs."""
    level, reference = matched_runs(runs, comparison)
    values = runs.outcome(outcome)
    present = ~np.isnan(values[level]) & ~np.isnan(values[reference])
    if not present.any():
        return None
    clusters, cluster = np.unique(runs.cluster[level[present]], return_inverse=True)
    return Changes(
        values[level[present]],
        values[reference[present]],
        cluster,
        runs.benchmark_of_cluster[clusters],
    )


def effects_of(
    runs: Runs,
    comparisons: Sequence[Comparison],
    benchmarks: Sequence[str],
    margin: float,
    settings: AnalysisSettings,
) -> list[AxisEffect]:
    """Return every comparison's effect on every outcome, regret first.

    Holm's adjustment covers all effects, so that a result has one error rate: half is for regret,
    a quarter for area and a quarter for all behaviour. It excludes starts, and tests that could not
    be significant under any labelling (Tarone 1990, Biometrics 46, 515-522).

    Args:
        benchmarks: the benchmarks in the order of ``by_benchmark``.
        margin: smallest benefit in regret and area that matters.
    """
    alpha = 1.0 - settings.confidence
    made = [
        _effect(runs, comparison, outcome, benchmarks, settings, OUTCOMES.index(outcome), place)
        for outcome in OUTCOMES
        for place, comparison in enumerate(comparisons)
    ]
    members = [e.axis != "start" and least <= alpha and e.p_value is not None for e, least in made]
    families = [e.outcome if e.outcome in PERFORMANCE else "behaviour" for e, _ in made]
    sizes = Counter(family for family, member in zip(families, members, strict=True) if member)
    weights = [SHARES[family] / max(sizes[family], 1) for family in families]
    p_values = [effect.p_value if m else None for (effect, _), m in zip(made, members, strict=True)]
    p_holm = holm(p_values, weights)
    adjusted = [replace(effect, p_holm=p) for (effect, _), p in zip(made, p_holm, strict=True)]
    return [replace(effect, verdict=_verdict(effect, margin, alpha)) for effect in adjusted]


def _effect(
    runs: Runs,
    comparison: Comparison,
    outcome: OutcomeName,
    benchmarks: Sequence[str],
    settings: AnalysisSettings,
    *key: int,
) -> tuple[AxisEffect, float]:
    """Return the effect and the smallest p-value that a test on its pairs could reach."""
    empty = nulls(
        AxisEffect,
        **asdict(comparison),
        outcome=outcome,
        n_pairs=0,
        n_clusters=0,
        p_exact=False,
        verdict="undecided",
        by_benchmark=[],
    )
    changes = changes_of(runs, comparison, outcome)
    if changes is None:
        return empty, 1.0
    means = changes.means(changes.change)
    low, high = means.interval(settings.confidence)
    p_value, exact = None, False
    if len(means.values) > 1:
        rng = np.random.default_rng((settings.seed, 31, *key))
        p_value, exact = studentized_flips(
            changes.change, changes.cluster, changes.stratum, FLIPS, rng
        )
    spread = changes.run_sd()
    at_reference = changes.means(changes.reference).mean
    limit = None
    if outcome in PERFORMANCE:
        benefit = ClusterMeans(-means.values, means.stratum)
        limit = benefit.upper(0.5 * (1.0 + settings.confidence), at_reference)
    effect = replace(
        empty,
        n_pairs=len(changes.level),
        n_clusters=len(means.values),
        mean=changes.means(changes.level).mean,
        mean_reference=at_reference,
        difference=means.mean,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        p_exact=exact,
        standardised=means.mean / spread if spread else None,
        excluded=limit,
        by_benchmark=_by_benchmark(runs, changes, benchmarks, settings),
    )
    return effect, 2.0 ** (1 - int(np.count_nonzero(changes.change)))


def _by_benchmark(
    runs: Runs, changes: Changes, benchmarks: Sequence[str], settings: AnalysisSettings
) -> list[BenchmarkEffect]:
    names = list(dict.fromkeys(runs.benchmark.tolist()))
    overall = changes.means(changes.change)
    rows = []
    for name in benchmarks:
        inside = overall.stratum == (names.index(name) if name in names else -1)
        if not inside.any():
            continue
        means = ClusterMeans(overall.values[inside], overall.stratum[inside])
        low, high = means.interval(settings.confidence)
        rows.append(
            BenchmarkEffect(
                benchmark=name,
                n_pairs=int(inside[changes.cluster].sum()),
                n_clusters=int(inside.sum()),
                difference=means.mean,
                ci_low=low,
                ci_high=high,
            )
        )
    return rows


def _verdict(effect: AxisEffect, margin: float, alpha: float) -> EffectVerdict:
    """Return the first verdict that applies: significant, no benefit, undecided."""
    significant = effect.p_holm is not None and effect.p_holm <= alpha and effect.difference
    performance = effect.outcome in PERFORMANCE
    if significant and effect.difference is not None:
        if performance:
            return "better" if effect.difference < 0.0 else "worse"
        return "lower" if effect.difference < 0.0 else "higher"
    roomy = effect.mean_reference is not None and effect.mean_reference >= ROOM * margin
    if performance and roomy and effect.excluded is not None and effect.excluded < margin:
        return "no_benefit"
    return "undecided"


def _numbered(keys: Sequence[Any]) -> Ints:
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return np.array([places[key] for key in keys], np.int64)
