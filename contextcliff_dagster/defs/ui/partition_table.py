"""Partition keys of an experiment: their tokens, their calls, what is done and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.defs.ui.token_ranges import DIMENSION, range_of
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import recipe_of, sources_of
from contextcliff_dagster.experiments.common.study_run import StudyRun

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_NAMED = 4
"""Models of a cell: of fifty, the table would be longer than the UI shows."""


def partition_rows(
    run: StudyRun, experiment: Experiment, records: pa.Table
) -> list[dict[str, Any]]:
    """A row for each key of the experiment's dimension, measured or not.

    ``calls`` are of one model. A model is done with a key when all of them have an answer; those
    that are not are named with how many they have, and so are models with calls that failed.
    """
    calls = _planned_calls(run, experiment)
    done = _by_model(records, scored=True)
    failed = _by_model(records, scored=False)
    merged, models = experiment.merged_cells(run), run.study.models
    rows = []
    for cell in experiment.cells(run.study):
        behind = {m: done.get((m, cell), 0) for m in models}
        behind = {m: n for m, n in behind.items() if n < calls[cell]}
        lost = {m: n for m in models if (n := failed.get((m, cell), 0))}
        row: dict[str, Any] = {"key": cell}
        if experiment.dimension == DIMENSION:
            row["tokens"] = range_of(run.manifest.bins, cell)
        rows.append(
            {
                **row,
                "calls": calls[cell],
                "models done": f"{len(models) - len(behind)} of {len(models)}",
                "not done": _named(behind, calls[cell]),
                "failed calls": _named(lost, None),
                "merged into": merged.get(cell),
            }
        )
    return rows


def _planned_calls(run: StudyRun, experiment: Experiment) -> dict[str, int]:
    """Cell -> calls that the study plans of one model."""
    n = experiment.samples_per_cell(run.study)
    calls = dict.fromkeys(experiment.cells(run.study), 0)
    for source in sources_of(run, experiment):
        each = recipe_of(experiment, source, run.study).replicates * source.steps
        for cell in calls:
            calls[cell] += len(source.samples.planned(cell, n)) * each
    return calls


def _by_model(records: pa.Table, *, scored: bool) -> dict[tuple[str, str], int]:
    """Model and cell -> calls with a score, or those without one."""
    import pyarrow.compute as pc

    valid = pc.is_valid(records["score"])
    of = records.filter(valid if scored else pc.invert(valid))
    counts = of.group_by(["model", "bin"]).aggregate([("call_key", "count_distinct")])
    return {
        (row["model"], row["bin"]): row["call_key_count_distinct"] for row in counts.to_pylist()
    }


def _named(numbers: dict[str, int], of: int | None) -> str:
    parts: Sequence[str] = [
        f"{model}: {n}" + ("" if of is None else f" of {of}") for model, n in numbers.items()
    ]
    more = len(parts) - _MOST_NAMED
    return ", ".join([*parts[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]) or "none"
