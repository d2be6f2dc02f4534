"""One step of a run in words: what the reply set, what became of it, what it scored.

The records of one run as its start and steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.extensions.visibility.behaviour import Step, start_of, step_of
from contextcliff_dagster.extensions.visibility.report.names import (
    change_words,
    config_words,
    joined,
    score_words,
    value_words,
)
from contextcliff_dagster.extensions.visibility.tasks.clamping import ClampEvent, Reason
from contextcliff_dagster.extensions.visibility.tasks.parameters import (
    Choice,
    Config,
    Parameter,
    Space,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Task


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step with its scores; the start is number 0. Scores are None where training failed.

    Attributes:
        failure: failure tag of the reply.
        test: score of what would be reported after the step.
        regret: normalised regret of that.
    """

    number: int
    step: Step
    validation: float | None
    test: float | None
    regret: float | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run, from its start to its last step."""

    key: str
    benchmark: str
    planned_steps: int
    steps: tuple[RecordedStep, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every planned step is there."""
        return [one.number for one in self.steps] == list(range(self.planned_steps + 1))

    @property
    def regret(self) -> float | None:
        """Regret after the last step."""
        return self.steps[-1].regret


def recorded_run(rows: Iterable[Mapping[str, Any]]) -> RecordedRun:
    """Return the run of these rows of `tables.VISIBILITY_RECORDS`, in any order.

    Raises:
        ValueError: there is no row.
    """
    ordered = sorted(rows, key=lambda row: int(row["step"]))
    if not ordered:
        raise ValueError("a run without a row has no steps")
    first = ordered[0]
    start = RecordedStep(
        0,
        start_of(first),
        _known(first["start_validation"]),
        _known(first["start_test"]),
        _known(first["start_regret"]),
    )
    return RecordedRun(
        key=str(first["run"]),
        benchmark=str(first["benchmark"]),
        planned_steps=int(first["steps"]),
        steps=(start, *map(_recorded_step, ordered)),
    )


def _recorded_step(row: Mapping[str, Any]) -> RecordedStep:
    failure = row["failure"]
    return RecordedStep(
        int(row["step"]),
        step_of(row),
        _known(row["validation"]),
        _known(row["reported"]),
        _known(row["regret"]),
        failure if isinstance(failure, str) else None,
    )


def _known(value: Any) -> float | None:
    """A score; pandas writes nan where there is none."""
    return None if value is None or value != value else float(value)


def step_sentence(before: Sequence[RecordedStep], one: RecordedStep, task: Task) -> str:
    """Return a step, not the start, as a sentence. ``before``: the steps up to it, start first."""
    what = _what(before, one, task.space)
    return f"Step {one.number}: {what}; {_scored(before, one, task)}."


def start_sentence(start: RecordedStep, task: Task) -> str:
    """Return the start as a sentence."""
    scored = f"validation {task.score.name} {score_words(start.validation, task.score)}"
    better = "higher" if task.score.higher_is_better else "lower"
    return f"Start: {config_words(start.step.config)}; {scored} ({better} is better)."


def _what(before: Sequence[RecordedStep], one: RecordedStep, space: Space) -> str:
    if one.step.source == "fallback":
        return _unused(before, one)
    base = one.step.base or before[-1].step.config
    parts = [_return(before, one)]
    if parts == [""] and base != before[-1].step.config:
        parts.append(f"went on from {_place(before, base)}")
    parts += _changes(space, base, one, named=not parts[0])
    parts += [words for event in one.step.events if (words := _remark(event))]
    there = [part for part in parts if part] or ["stayed with the same configuration"]
    return "; ".join(there) if any(", " in part for part in there) else joined(there)


def _unused(before: Sequence[RecordedStep], one: RecordedStep) -> str:
    """A step that the model did not choose."""
    if one.step.unparsable:
        why = "the reply could not be read"
    elif one.failure in ("context_overflow", "invalid_truncated", "content_filter"):
        why = f"there is no answer ({one.failure.replace('_', ' ')})"
    elif one.step.proposed is None:
        why = "there is no reply"
    else:
        why = "the reply sets no parameter of the task"
    same = _same(one.step.config, before[-1].step.config)
    where = "the configuration stayed" if same else f"it was {_place(before, one.step.config)}"
    return f"{why}, so {where}"


def _return(before: Sequence[RecordedStep], one: RecordedStep) -> str:
    """Words where the configuration is an earlier one; none for a new one."""
    if _same(one.step.config, before[-1].step.config):
        return "stayed with the same configuration"
    earlier = [step for step in before if _same(step.step.config, one.step.config)]
    return f"went back to {_named(earlier[0])}" if earlier else ""


def _place(before: Sequence[RecordedStep], config: Config) -> str:
    earlier = [step for step in before if _same(step.step.config, config)]
    return _named(earlier[0]) if earlier else f"the configuration {config_words(config)}"


def _named(step: RecordedStep) -> str:
    return f"the configuration of {f'step {step.number}' if step.number else 'the start'}"


def _same(a: Config, b: Config) -> bool:
    """Whether two configurations are one: 1 and 1.0 are, true and 1 are not."""
    return _key(a) == _key(b)


def _key(config: Config) -> str:
    values = {name: float(v) if type(v) is int else v for name, v in config.items()}
    return json.dumps(values, sort_keys=True)


def _changes(space: Space, base: Config, one: RecordedStep, *, named: bool) -> list[str]:
    """Bounds that the proposal met; and what differs from the configuration that it was put on,
    where that is to be ``named``, raised and lowered ones together."""
    met = {event.parameter: event for event in one.step.events if event.out_of_bounds}
    bounds: list[str] = []
    by_verb: dict[str, list[str]] = {}
    for parameter in space.parameters:
        name, old, new = parameter.name, base[parameter.name], one.step.config[parameter.name]
        if name in met:
            bounds.append(_clamped(met[name], parameter, changed=old != new))
        elif named and old != new:
            first, second = change_words(old, new)
            words = f"{name} from {first} to {second}{_edge(parameter, new)}"
            by_verb.setdefault(_verb(old, new), []).append(words)
    return [*bounds, *(f"{verb} {', '.join(words)}" for verb, words in by_verb.items())]


def _verb(old: object, new: object) -> str:
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    if not numbers or isinstance(old, bool):
        return "changed"
    return "raised" if new > old else "lowered"  # type: ignore[operator]


def _edge(parameter: Parameter, value: object) -> str:
    """That a value is a bound, which nothing had to enforce."""
    if isinstance(parameter, Choice):
        return ""
    if value == parameter.high:
        return " (the upper bound)"
    return " (the lower bound)" if value == parameter.low else ""


def _clamped(event: ClampEvent, parameter: Parameter, *, changed: bool) -> str:
    bound = "lower" if event.reason == Reason.BELOW else "upper"
    verb = "got" if changed else "stayed at"
    return (
        f"asked for {parameter.name} {value_words(event.proposed)} ({verb} its {bound} bound, "
        f"{value_words(event.executed)})"
    )


def _remark(event: ClampEvent) -> str:
    """Other differences between what was proposed and what was executed."""
    name, given = event.parameter, value_words(event.proposed, 8)
    words = {
        Reason.ROUNDED: f"{name} {given} was rounded",
        Reason.NAN: f"{given} for {name} changes nothing",
        Reason.NOT_A_NUMBER: f"{given} for {name} is no number",
        Reason.NOT_A_CHOICE: f"{given} for {name} is none of its choices",
        Reason.UNKNOWN: f"{value_words(name)} is no parameter of the task",
    }
    return words.get(event.reason, "")


def _scored(before: Sequence[RecordedStep], one: RecordedStep, task: Task) -> str:
    if one.validation is None:
        return "it could not be trained"
    words = f"validation {score_words(one.validation, task.score)}"
    known = [step for step in before if step.validation is not None]
    if not known:
        return f"{words}, the first score"
    sign = 1.0 if task.score.higher_is_better else -1.0
    best = max(known, key=lambda step: sign * (step.validation or 0.0))
    ahead = sign * (one.validation - (best.validation or 0.0))
    if ahead > 0:
        return f"{words}, the best so far"
    at = f"step {best.number}" if best.number else "the start"
    if ahead == 0:
        return f"{words}, as good as the best so far"
    return f"{words}, behind {score_words(best.validation, task.score)} of {at}"
