"""Records: each reply with the configuration that it led to, trained and scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, FailureTag
from contextcliff_dagster.extensions.visibility.axes import AXES, PlannedRun
from contextcliff_dagster.extensions.visibility.baselines.search import Trial, reported_scores
from contextcliff_dagster.extensions.visibility.behaviour import as_json, columns_of
from contextcliff_dagster.extensions.visibility.landscape.table import normalised_regret
from contextcliff_dagster.extensions.visibility.runs.sources import usage_of
from contextcliff_dagster.extensions.visibility.runs.tuning import Bench, Benches, History

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.behaviour import Step

SCORING_VERSION = "visibility 1"
_SCORED = ("em", "f1", "contained", "score", "parsed_answer", "failed", "failure")
_OF_ANSWER = [
    name for name in EVAL_RECORDS.column_names if name not in {*_SCORED, "scorer_version", "kind"}
]


def score_rows(
    rows: Iterable[Mapping[str, Any]], runs: Mapping[str, PlannedRun], benches: Benches, steps: int
) -> list[dict[str, Any]]:
    """Return the rows of `tables.VISIBILITY_RECORDS` for rows of predictions.

    Args:
        rows: with the columns of `contracts.PREDICTIONS`, of each run in the order of its steps.
        runs: by the key of their cell.
        steps: that a whole run has.

    Raises:
        DataError, StoreError: see `runs.trainings.Trainings.evaluation`.
    """
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(str(row["bin"]), []).append(row)
    return [
        record
        for cell, answers in by_run.items()
        for record in _records(runs[cell], benches[runs[cell].benchmark], answers, steps)
    ]


def _records(
    run: PlannedRun, bench: Bench, answers: Iterable[Mapping[str, Any]], steps: int
) -> Iterable[dict[str, Any]]:
    history = bench.begin(run)
    same = {
        "run": run.key,
        "benchmark": run.benchmark,
        "seed": run.seed,
        **{f"axis_{name}": getattr(run.axes, name) for name in AXES},
        "steps": steps,
        "scorer_version": SCORING_VERSION,
        **_of_start(bench, history),
    }
    for number, answer in enumerate(answers, start=1):
        record = {name: answer.get(name) for name in _OF_ANSWER} | same | {"step": number}
        if answer.get("no_answer") == FailureTag.TRANSPORT_ERROR:
            # No step: a later run asks again, and nothing can rest on it.
            return
        history = bench.after(run, history, answer.get("raw_output"), usage_of(answer))
        yield record | _of_step(bench, history, answer)


def _of_start(bench: Bench, history: History) -> dict[str, Any]:
    start = history[0]
    return {
        "start_config": as_json(start.step.config),
        "start_validation": _known(start.scores.validation),
        "start_test": _known(start.scores.test),
        "start_regret": _regret(bench, start.scores.test),
    }


def _of_step(bench: Bench, history: History, answer: Mapping[str, Any]) -> dict[str, Any]:
    last, no_answer = history[-1], answer.get("no_answer")
    step, higher = last.step, bench.task.score.higher_is_better
    trials = [Trial(one.step.config, one.scores) for one in history]
    reported = float(reported_scores(trials, higher_is_better=higher)[-1])
    regret = _regret(bench, reported)
    failure = no_answer or _failure(step, str(answer.get("raw_output") or ""))
    return {
        **columns_of(step),
        "validation": _known(last.scores.validation),
        "test": _known(last.scores.test),
        "reported": _known(reported),
        "regret": regret,
        "score": None if no_answer else 1 - regret,
        "failed": step.source == "fallback",
        "failure": failure,
    }


def _failure(step: Step, reply: str) -> str | None:
    if step.source == "model":
        return None
    if not reply.strip():
        return FailureTag.EMPTY.value
    drift = FailureTag.SCHEMA_VIOLATION if step.unparsable else FailureTag.INSTRUCTION_DRIFT
    return drift.value


def _regret(bench: Bench, score: float) -> float:
    assert bench.landscape is not None
    return float(normalised_regret(score, bench.landscape.best, bench.landscape.worst))


def _known(score: float) -> float | None:
    return score if score - score == 0 else None
