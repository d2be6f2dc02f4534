"""Traces: a run as JSON lines, one an event, made from the ledger alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
from contextcliff_dagster.extensions.visibility.axes import AXES
from contextcliff_dagster.extensions.visibility.behaviour import StabilityMetric, behaviour_of
from contextcliff_dagster.extensions.visibility.landscape.grounds import section_of
from contextcliff_dagster.extensions.visibility.runs.sources import usage_of
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.store import slug, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.experiments.common.experiment import Experiment, Source
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.visibility.axes import PlannedRun
    from contextcliff_dagster.extensions.visibility.runs.tuning import Bench, Benches, History


@dataclass(frozen=True, slots=True)
class Trace:
    """One run: its events, and what it came to. ``prompts``: (role, text) of each step."""

    run: PlannedRun
    events: Sequence[Mapping[str, Any]]
    prompts: Sequence[Sequence[tuple[str, str]]]
    steps: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]

    @property
    def started_at(self) -> datetime:
        """When the first reply came, which decides the folder of the trace."""
        return datetime.fromisoformat(self.events[0]["timestamp"])

    def write(self, folder: Path) -> Path:
        """Write the events below ``folder``/``benchmark``/``time``, and return the file.

        The same run has the same file, however often it is written.

        Raises:
            StoreError: the folder cannot be written.
        """
        time = self.started_at.strftime("%Y%m%dT%H%M%S")
        name = f"{slug(self.events[0]['details']['model'])}-{self.run.key}.jsonl"
        path = folder / self.run.benchmark / time / name
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
    """Yield the trace of each run of a model that has a step in the campaign.

    Raises:
        StoreError: outputs were pruned.
        DataError: the data of a benchmark are gone.
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
            planned = runs[cell]
            if made := list(takewhile(_is_step, answers)):
                yield _trace(planned, benches[planned.benchmark], made, prompts, steps)


def _prompts(
    run: StudyRun, experiment: Experiment, source: Source, identity_hash: str
) -> dict[str, list[tuple[str, str]]]:
    """What each call of a source has the model read, by the call's key."""
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
    """Whether there is an answer, or none for good: a failed request is made again."""
    return answer.get("no_answer") != FailureTag.TRANSPORT_ERROR


def _trace(
    run: PlannedRun,
    bench: Bench,
    answers: Sequence[Mapping[str, Any]],
    prompts: Mapping[str, list[tuple[str, str]]],
    planned_steps: int,
) -> Trace:
    history = bench.begin(run)
    same = {"run_id": run.key, "benchmark": run.benchmark}
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
    read = [prompts[answer["call_key"]] for answer in answers]
    return Trace(run, [{**same, **event} for event in events], read, steps, whole)


def _event(kind: str, step: int, time: str, /, **details: Any) -> dict[str, Any]:
    return {"event_type": kind, "step_idx": step, "timestamp": time, "details": details}


def _time(answer: Mapping[str, Any]) -> str:
    return str(answer["finished_at"].isoformat())


def _training(history: History) -> dict[str, Any]:
    scores = history[-1].scores
    return {
        "config": dict(history[-1].step.config),
        "validation": _known(scores.validation),
        "test": _known(scores.test),
    }


def _best(bench: Bench, history: History) -> int:
    """The step whose validation score is best; the first of equal ones."""
    sign = 1.0 if bench.task.score.higher_is_better else -1.0
    heights = [sign * one.scores.validation for one in history]
    known = [height if height == height else -math.inf for height in heights]
    return known.index(max(known))


def _step(bench: Bench, history: History, number: int) -> dict[str, Any]:
    best = _best(bench, history)
    return {
        **_training(history),
        "step": number,
        "source": history[-1].step.source,
        "best_step": best,
        "best_validation": _known(history[best].scores.validation),
    }


def _summary(
    bench: Bench, history: History, answers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    best = _best(bench, history)
    used = [usage for answer in answers if (usage := usage_of(answer)) is not None]
    steps = [one.step for one in history]
    costs = [answer["cost_usd"] for answer in answers if answer.get("cost_usd") is not None]
    return {
        "score": bench.task.score.name,
        "higher_is_better": bench.task.score.higher_is_better,
        "best_step": best,
        "best_config": dict(history[best].step.config),
        "best_validation": _known(history[best].scores.validation),
        "reported_test": _known(history[best].scores.test),
        "final_validation": _known(history[-1].scores.validation),
        "steps": len(history) - 1,
        "prompt_tokens": sum(usage.prompt_tokens for usage in used),
        "output_tokens": sum(usage.output_tokens for usage in used),
        "cost_usd": sum(costs) if costs else None,
        "behaviour": asdict(behaviour_of(bench.task.space, steps)),
        "stability_metrics": StabilityMetric().evaluate_trace(
            [{"config": dict(step.config)} for step in steps]
        ),
    }


def _known(score: float) -> float | None:
    return score if score - score == 0 else None
