"""Regret by step: of all runs, of each level of each axis, of searches without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.extensions.visibility.analysis.cluster_means import ClusterMeans
from contextcliff_dagster.extensions.visibility.baselines.search import area_under_curve
from contextcliff_dagster.extensions.visibility.results import (
    OUTCOMES,
    Cell,
    Curve,
    CurvePoint,
    SearchComparison,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints
    from contextcliff_dagster.extensions.visibility.analysis.runs import Runs

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
