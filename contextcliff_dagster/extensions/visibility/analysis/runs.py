"""Records, one a step, to runs: what each one reached, and how it searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.extensions.visibility.axes import AXES, PlannedRun, runs_of
from contextcliff_dagster.extensions.visibility.baselines.search import area_under_curve
from contextcliff_dagster.extensions.visibility.behaviour import (
    STEP_COLUMNS,
    behaviour_of,
    start_of,
    step_of,
)
from contextcliff_dagster.extensions.visibility.results import OUTCOMES, MissingRun, OutcomeName
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.visibility.section import VisibilitySection
    from contextcliff_dagster.extensions.visibility.tasks.parameters import Space


@dataclass(frozen=True, eq=False)
class Runs:
    """Whole runs, in the order of the plan.

    Attributes:
        planned: benchmark, seed and axes of each run (N).
        outcomes: `results.OUTCOMES` of each run (N, O), nan where it has none.
        curves: regret after each step, the start first (N, 1 + steps).
        paths: the configurations of each run as text, for telling equal ones (N).
        missing: planned runs of which a step has no answer.
        unplanned: runs with records that the section does not ask for.
    """

    planned: tuple[PlannedRun, ...]
    outcomes: Floats
    curves: Floats
    paths: tuple[str, ...]
    missing: tuple[MissingRun, ...]
    unplanned: int

    @cached_property
    def levels(self) -> Mapping[str, np.ndarray]:
        """Level of each run as text (N), by axis."""
        return {
            axis: np.array([str(getattr(run.axes, axis)) for run in self.planned], dtype=str)
            for axis in AXES
        }

    @cached_property
    def benchmark(self) -> np.ndarray:
        """Benchmark of each run (N)."""
        return np.array([run.benchmark for run in self.planned], dtype=str)

    @cached_property
    def cluster(self) -> Ints:
        """Number of each run's benchmark-seed (N), in the order of the plan."""
        return _numbered([(run.benchmark, run.seed) for run in self.planned])

    @cached_property
    def benchmark_of_cluster(self) -> Ints:
        """Number of each benchmark-seed's benchmark (C)."""
        number = _numbered([run.benchmark for run in self.planned])
        of_cluster = np.zeros(self.cluster.max(initial=-1) + 1, np.int64)
        of_cluster[self.cluster] = number
        return of_cluster

    def outcome(self, name: OutcomeName) -> Floats:
        """One outcome of each run (N)."""
        column: Floats = self.outcomes[:, OUTCOMES.index(name)]
        return column


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


def _numbered(keys: Sequence[Any]) -> Ints:
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    return np.array([places[key] for key in keys], np.int64)
