"""Scoring of replies as steps, and traces of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import FailureTag
from contextcliff_dagster.experiments.common.measurement import (
    EVERYTHING,
    ledger_rows,
    recipe_of,
    sources_of,
)
from contextcliff_dagster.extensions.visibility.baselines import Trial, reported_scores
from contextcliff_dagster.extensions.visibility.behaviour import (
    StabilityMetric,
    as_json,
    behaviour_of,
    columns_of,
)
from contextcliff_dagster.extensions.visibility.landscape import normalised_regret
from contextcliff_dagster.extensions.visibility.runs.tuning import (
    Bench,
    Benches,
    History,
    finite,
    usage_of,
)
from contextcliff_dagster.extensions.visibility.section import AXES, PlannedRun, section_of
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.scoring.evaluate import CALL_COLUMNS
from contextcliff_dagster.store import slug, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.experiments.common.experiment import Experiment, Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.visibility.behaviour import Step


SCORING_VERSION = "visibility 1"


def score_rows(
    rows: Iterable[Mapping[str, Any]], runs: Mapping[str, PlannedRun], benches: Benches, steps: int
) -> list[dict[str, Any]]:
    """Return the rows of `tables.VISIBILITY_RECORDS` for the given predictions.

    Args:
        rows: predictions (`contracts.PREDICTIONS`), with those of each run in step order.
        runs: runs by cell key.
        steps: number of steps of a complete run.

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
    common = {
        "run": run.key,
        "benchmark": run.benchmark,
        "seed": run.seed,
        **{f"axis_{name}": getattr(run.axes, name) for name in AXES},
        "steps": steps,
        "scorer_version": SCORING_VERSION,
        **_of_start(bench, history),
    }
    for number, answer in enumerate(takewhile(_is_step, answers), start=1):
        record = {name: answer.get(name) for name in CALL_COLUMNS} | common | {"step": number}
        history = bench.after(run, history, answer.get("raw_output"), usage_of(answer))
        yield record | _of_step(bench, history, answer)


def _of_start(bench: Bench, history: History) -> dict[str, Any]:
    start = history[0]
    return {
        "start_config": as_json(start.step.config),
        "start_validation": finite(start.scores.validation),
        "start_test": finite(start.scores.test),
        "start_regret": _regret(bench, start.scores.test),
    }


def _of_step(bench: Bench, history: History, answer: Mapping[str, Any]) -> dict[str, Any]:
    last, no_answer = history[-1], answer.get("no_answer")
    step, higher = last.step, bench.task.score.higher_is_better
    trials = [Trial(entry.step.config, entry.scores) for entry in history]
    reported = float(reported_scores(trials, higher_is_better=higher)[-1])
    regret = _regret(bench, reported)
    failure = no_answer or _failure(step, str(answer.get("raw_output") or ""))
    return {
        **columns_of(step),
        "validation": finite(last.scores.validation),
        "test": finite(last.scores.test),
        "reported": finite(reported),
        "regret": regret,
        "score": None if no_answer or regret is None else 1 - regret,
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


def _regret(bench: Bench, score: float) -> float | None:
    if bench.landscape is None:
        return None
    return float(normalised_regret(score, bench.landscape.best, bench.landscape.worst))


@dataclass(frozen=True, slots=True)
class Trace:
    """A run with its events and outcome; ``prompts`` holds each step's messages as (role, text).

    ``name``: the name that the user gave the run, if any.
    """

    run: PlannedRun
    events: Sequence[Mapping[str, Any]]
    prompts: Sequence[Sequence[tuple[str, str]]]
    steps: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    name: str | None = None

    @property
    def run_id(self) -> str:
        """Return the run's name, or else its key."""
        return self.name or self.run.key

    def named(self, name: str) -> Trace:
        """Return the trace with ``name`` as its folder, its file name and every event's run_id."""
        return replace(self, name=name, events=[{**e, "run_id": name} for e in self.events])

    def write(self, folder: Path) -> Path:
        """Write the events to a file in ``folder``/``benchmark``/``time or name``; return its path.

        A run's path never changes, so writing it again replaces the file. Raise StoreError.
        """
        began = datetime.fromisoformat(self.events[0]["timestamp"])
        name = self.name or f"{slug(self.events[0]['details']['model'])}-{self.run.key}"
        place = self.name or began.strftime("%Y%m%dT%H%M%S")
        path = folder / self.run.benchmark / place / f"{name}.jsonl"
        # In ASCII: a line separator of Unicode within a reply would end the line for many readers.
        lines = map(json.dumps, self.events)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(f"{line}\n" for line in lines).encode(), private=False)
        return path


def traces_of(
    run: StudyRun,
    experiment: Experiment,
    model: str,
    runs: Mapping[str, PlannedRun],
    benches: Benches,
) -> Iterator[Trace]:
    """Yield a trace for each of a model's runs that has at least one step in the campaign.

    Raise StoreError for pruned outputs, DataError without the data.
    """
    identity = recorded_identity(run.ledger, run.study.name, run.campaign, model)
    cells, steps = experiment.cells(run.study), section_of(run.study).steps
    for source in sources_of(run, experiment) if identity is not None else ():
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in ledger_rows(run, experiment, source, model, cells):
            rows.setdefault(row["bin"], []).append(row)
        assert identity is not None
        prompts = _prompts(run, experiment, source, identity.hash)
        for cell, answers in rows.items():
            plan = runs[cell]
            if own_answers := list(takewhile(_is_step, answers)):
                yield _trace(plan, benches[plan.benchmark], own_answers, prompts, steps)


def _prompts(
    run: StudyRun, experiment: Experiment, source: Source, identity_hash: str
) -> dict[str, list[tuple[str, str]]]:
    """Return the messages of each call of a source as (role, text) pairs, by call key."""
    plan = CallPlan(
        study=run.study.name,
        campaign=run.campaign,
        source=source.samples,
        recipe=recipe_of(experiment, source, run.study),
        bins=experiment.cells(run.study),
        n=EVERYTHING,
        follow_up=source.follow_up,
    )
    read: dict[str, list[tuple[str, str]]] = {}
    for call in plan.calls(identity_hash, partial(run.ledger.outcomes, study=run.study.name)):
        prompt = call.prompt()
        turns = [(turn.role, turn.content) for turn in prompt.messages]
        read[call.call_key] = [(str(role), text) for role, text in turns] or [("text", prompt.text)]
    return read


def _is_step(answer: Mapping[str, Any]) -> bool:
    """Return whether a row is final. A failed request is not: a later run asks again."""
    return answer.get("no_answer") != FailureTag.TRANSPORT_ERROR


def _trace(
    run: PlannedRun,
    bench: Bench,
    answers: Sequence[Mapping[str, Any]],
    prompts: Mapping[str, list[tuple[str, str]]],
    planned_steps: int,
) -> Trace:
    history = bench.begin(run)
    common = {"run_id": run.key, "benchmark": run.benchmark}
    began = _time(answers[0])
    axes = {name: getattr(run.axes, name) for name in AXES}
    events: list[dict[str, Any]] = [
        _event("run.start", 0, began, seed=run.seed, axes=axes, model=answers[0]["model"]),
        _event("op.train", 0, began, source="start", **_training(history)),
    ]
    steps = []
    for number, answer in enumerate(answers, start=1):
        time = _time(answer)
        usage = usage_of(answer)
        history = bench.after(run, history, answer.get("raw_output"), usage)
        step = history[-1].step
        proposal = {
            "source": step.source,
            "prompt": [{"role": role, "text": text} for role, text in prompts[answer["call_key"]]],
            "raw_reply": answer.get("raw_output"),
            "proposal": step.proposed,
            "unparsable": step.unparsable,
            "clamps": [asdict(event) for event in step.events],
            "base_config": dict(step.base or {}),
            "usage": None if usage is None else asdict(usage),
            "finish_reason": answer.get("finish_reason"),
            "no_answer": answer.get("no_answer"),
            "cost_usd": answer.get("cost_usd"),
            "latency_ms": answer.get("duration_ms"),
        }
        summary = _step(bench, history, number)
        steps.append({**summary, "proposal": proposal})
        events.append(_event("op.config_proposal", number, time, **proposal))
        events.append(_event("op.train", number, time, source=step.source, **_training(history)))
        events.append(_event("step.summary", number, time, **summary))
    whole = {"planned_steps": planned_steps, **_summary(bench, history, answers)}
    whole["status"] = "success" if len(answers) == planned_steps else "incomplete"
    events.append(_event("run.end", len(history) - 1, _time(answers[-1]), **whole))
    messages = [prompts[answer["call_key"]] for answer in answers]
    return Trace(run, [{**common, **event} for event in events], messages, steps, whole)


def _event(kind: str, step: int, time: str, /, **details: Any) -> dict[str, Any]:
    return {"event_type": kind, "step_idx": step, "timestamp": time, "details": details}


def _time(answer: Mapping[str, Any]) -> str:
    return str(answer["finished_at"].isoformat())


def _training(history: History) -> dict[str, Any]:
    scores = history[-1].scores
    return {
        "config": dict(history[-1].step.config),
        "validation": finite(scores.validation),
        "test": finite(scores.test),
    }


def _step(bench: Bench, history: History, number: int) -> dict[str, Any]:
    best = bench.state(history).best_step(bench.task)
    return {
        **_training(history),
        "step": number,
        "source": history[-1].step.source,
        "best_step": best,
        "best_validation": finite(history[best].scores.validation),
    }


def _summary(
    bench: Bench, history: History, answers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    best = bench.state(history).best_step(bench.task)
    usages = [usage for answer in answers if (usage := usage_of(answer)) is not None]
    steps = [entry.step for entry in history]
    costs = [answer["cost_usd"] for answer in answers if answer.get("cost_usd") is not None]
    return {
        "score": bench.task.score.name,
        "higher_is_better": bench.task.score.higher_is_better,
        "best_step": best,
        "best_config": dict(history[best].step.config),
        "best_validation": finite(history[best].scores.validation),
        "reported_test": finite(history[best].scores.test),
        "final_validation": finite(history[-1].scores.validation),
        "steps": len(history) - 1,
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
        "cost_usd": sum(costs) if costs else None,
        "behaviour": asdict(behaviour_of(bench.task.space, steps)),
        "stability_metrics": StabilityMetric().evaluate_trace(
            [{"config": dict(step.config)} for step in steps]
        ),
    }
