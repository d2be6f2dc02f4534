"""Step-by-step descriptions of single runs, and selection of the runs that a report describes.

A step's description gives the values that the reply set, how they were changed, and the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.visibility.behaviour import (
    Behaviour,
    Step,
    behaviour_of,
    config_key,
    start_of,
    step_of,
)
from contextcliff_dagster.extensions.visibility.report.names import (
    change_words,
    config_words,
    score_words,
    value_words,
)
from contextcliff_dagster.extensions.visibility.section import AXES
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Choice,
    ClampEvent,
    Config,
    Parameter,
    Reason,
    Space,
    Task,
)
from contextcliff_dagster.reporting.wording import count, listed, number, score

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step with its scores; the start has number 0. Scores are None if training failed.

    Attributes:
        failure: failure tag of the reply.
        test: test score of the configuration that would be reported after the step.
        regret: normalised regret of the reported configuration.
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
        """Return whether every planned step is present."""
        return [step.number for step in self.steps] == list(range(self.planned_steps + 1))

    @property
    def regret(self) -> float | None:
        """Return the regret after the last step."""
        return self.steps[-1].regret


def recorded_run(rows: Iterable[Mapping[Any, Any]]) -> RecordedRun:
    """Return the run in its rows of `tables.VISIBILITY_RECORDS`, at least one."""
    steps = sorted(rows, key=lambda row: int(row["step"]))
    first = steps[0]
    start = RecordedStep(
        0,
        start_of(first),
        number(first["start_validation"]),
        number(first["start_test"]),
        number(first["start_regret"]),
    )
    return RecordedRun(
        key=str(first["run"]),
        benchmark=str(first["benchmark"]),
        planned_steps=int(first["steps"]),
        steps=(start, *map(_recorded_step, steps)),
    )


def _recorded_step(row: Mapping[str, Any]) -> RecordedStep:
    failure = row["failure"]
    return RecordedStep(
        int(row["step"]),
        step_of(row),
        number(row["validation"]),
        number(row["reported"]),
        number(row["regret"]),
        failure if isinstance(failure, str) else None,
    )


def _what(before: Sequence[RecordedStep], one: RecordedStep, space: Space) -> str:
    if one.step.source == "fallback":
        return _unused(before, one)
    base = one.step.base or before[-1].step.config
    parts = [_return(before, one)]
    if parts == [""] and base != before[-1].step.config:
        parts.append(f"went on from {_place(before, base)}")
    parts += _changes(space, base, one, named=not parts[0])
    parts += [words for event in one.step.events if (words := _remark(event))]
    phrases = [part for part in parts if part] or ["stayed with the same configuration"]
    return "; ".join(phrases) if any(", " in part for part in phrases) else listed(phrases)


def _unused(before: Sequence[RecordedStep], one: RecordedStep) -> str:
    """Describe a step that the model did not choose, and why."""
    if one.step.unparsable:
        why = "the reply could not be read"
    elif one.failure in ("context_overflow", "invalid_truncated", "content_filter"):
        why = f"there is no answer ({one.failure.replace('_', ' ')})"
    elif one.step.proposed is None:
        why = "there is no reply"
    else:
        why = "the reply sets no parameter of the task"
    stayed = config_key(one.step.config) == config_key(before[-1].step.config)
    place = "the configuration stayed" if stayed else f"it was {_place(before, one.step.config)}"
    return f"{why}, so {place}"


def _return(before: Sequence[RecordedStep], one: RecordedStep) -> str:
    """Describe a return to an earlier configuration; empty if the configuration is new."""
    earlier = _first_like(before, one.step.config)
    if config_key(one.step.config) == config_key(before[-1].step.config):
        return "stayed with the same configuration"
    return f"went back to {_named(earlier)}" if earlier else ""


def _place(before: Sequence[RecordedStep], config: Config) -> str:
    earlier = _first_like(before, config)
    return _named(earlier) if earlier else f"the configuration {config_words(config)}"


def _first_like(steps: Sequence[RecordedStep], config: Config) -> RecordedStep | None:
    key = config_key(config)
    return next((step for step in steps if config_key(step.step.config) == key), None)


def _named(step: RecordedStep) -> str:
    return f"the configuration of {f'step {step.number}' if step.number else 'the start'}"


def _changes(space: Space, base: Config, one: RecordedStep, *, named: bool) -> list[str]:
    """Describe the bounds that were met and, if ``named``, the changes to the base by verb."""
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
    """Return a remark if the value equals a bound without having been clamped; else empty."""
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
    """Describe a difference between the proposal and its execution other than clamping."""
    name, proposal = event.parameter, value_words(event.proposed, 8)
    words = {
        Reason.ROUNDED: f"{name} {proposal} was rounded",
        Reason.NAN: f"{proposal} for {name} changes nothing",
        Reason.NOT_A_NUMBER: f"{proposal} for {name} is not a number",
        Reason.NOT_A_CHOICE: f"{proposal} for {name} is not one of its choices",
        Reason.UNKNOWN: f"{value_words(name)} is not a parameter of the task",
    }
    return words.get(event.reason, "")


def _scored(before: Sequence[RecordedStep], one: RecordedStep, task: Task) -> str:
    if one.validation is None:
        return "it could not be trained"
    words = f"validation {score_words(one.validation, task.score)}"
    trained = [step for step in before if step.validation is not None]
    if not trained:
        return f"{words}, the first score"
    sign = 1.0 if task.score.higher_is_better else -1.0
    best = max(trained, key=lambda step: sign * (step.validation or 0.0))
    ahead = sign * (one.validation - (best.validation or 0.0))
    if ahead > 0:
        return f"{words}, the best so far"
    at = f"step {best.number}" if best.number else "the start"
    if ahead == 0:
        return f"{words}, as good as the best so far"
    return f"{words}, behind {score_words(best.validation, task.score)} of {at}"


MOSTLY = 0.5
"""Smallest fraction of steps of one kind for which a run is described by that kind."""
SMALL_MOVES, LARGE_MOVES = 0.05, 0.3
"""Churn below which a run is said to move in small steps, and from which it is said to jump."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A run described in words: why it was selected, its start, steps, search style and regret."""

    model: str
    why: str
    run: RecordedRun
    steps: Sequence[str]
    summary: Sequence[str]


def trajectories_of(records: pd.DataFrame) -> list[Trajectory]:
    """Describe each model's runs with median and worst regret in the most informative combination.

    That combination shows the most axes; ties are broken by the longest history, then by signature.
    Only complete runs count; for an even number, the better of the middle two is the median. Models
    without a complete run are omitted.
    """
    trajectories = []
    for model, rows in records.groupby("model", sort=False):
        runs = {
            key: run
            for key, of_run in _shows_most(rows).groupby("run")
            if (run := recorded_run(of_run.to_dict("records"))).is_whole
        }
        ranked = sorted(runs.values(), key=lambda one: (one.regret or 0.0, one.key))
        if not ranked:
            continue
        median, worst = ranked[(len(ranked) - 1) // 2], ranked[-1]
        of = f"of {count(len(ranked), 'run')} that {'shows' if len(ranked) == 1 else 'show'} most"
        why = f"Median regret {of}" if len(ranked) > 1 else "The run"
        trajectories.append(trajectory_of(str(model), median, why))
        if worst is not median:
            trajectories.append(trajectory_of(str(model), worst, f"Most regret {of}"))
    return trajectories


def trajectory_of(model: str, run: RecordedRun, why: str) -> Trajectory:
    """Describe a run in sentences: its start, each step, search style and reported result."""
    task = task_named(run.benchmark)
    start = run.steps[0]
    scored = f"validation {task.score.name} {score_words(start.validation, task.score)}"
    better = "higher" if task.score.higher_is_better else "lower"
    sentences = [f"Start: {config_words(start.step.config)}; {scored} ({better} is better)."]
    for k, step in enumerate(run.steps[1:], start=1):
        before = run.steps[:k]
        action = _what(before, step, task.space)
        sentences.append(f"Step {step.number}: {action}; {_scored(before, step, task)}.")
    behaviour = behaviour_of(task.space, [step.step for step in run.steps])
    return Trajectory(
        model=model,
        why=why,
        run=run,
        steps=sentences,
        summary=[_way(behaviour), _outcome(run, task)],
    )


def _shows_most(rows: pd.DataFrame) -> pd.DataFrame:
    columns = [f"axis_{name}" for name in AXES]
    combinations = rows[columns].drop_duplicates().to_dict("records")

    def rank(levels: Mapping[Any, Any]) -> tuple[int, int, str]:
        shown = sum(value == "shown" for value in levels.values()) + (levels["axis_history"] > 0)
        return -shown, -int(levels["axis_history"]), str([levels[name] for name in columns])

    most = min(combinations, key=rank)
    return rows[(rows[columns] == [most[name] for name in columns]).all(axis=1)]


def _way(found: Behaviour) -> str:
    """Describe in sentences how the run searched, most informative first."""
    if not found.model_steps or found.churn is None:
        return "No reply set a parameter, so nothing was searched."
    fallbacks = ""
    if count_left := found.steps - found.model_steps:
        fallbacks = f" {count(count_left, 'step')} of {found.steps:,} set nothing."
    return f"{_style(found)}: {_counts(found)}.{fallbacks}{_bounds(found)}"


def _style(found: Behaviour) -> str:
    parameters = [name for name, churn in found.churn_by_parameter.items() if churn > 0]
    if (found.stagnation or 0.0) >= MOSTLY:
        return "It mostly stayed where it was"
    if (found.oscillation or 0.0) >= MOSTLY:
        return "It mostly went back to earlier configurations"
    if len(parameters) == 1 < len(found.churn_by_parameter):
        return f"It changed {parameters[0]} alone"
    if (found.churn or 0.0) < SMALL_MOVES:
        return "It moved in small steps"
    return "It jumped" if (found.churn or 0.0) >= LARGE_MOVES else "Its moves were of medium size"


def _counts(found: Behaviour) -> str:
    n = found.model_steps
    shares = (found.novelty, found.stagnation, found.oscillation)
    new, same, back = (round((share or 0.0) * n) for share in shares)
    parts = [f"{new:,} of {count(n, 'step')} of the model {'is' if new == 1 else 'are'} new"]
    if same:
        parts.append(f"{same:,} {'repeats' if same == 1 else 'repeat'} the one before")
    if back:
        parts.append(f"{back:,} {'goes' if back == 1 else 'go'} back to an earlier one")
    move = f"the mean move is {score(found.churn)} of a parameter's range"
    return f"{listed(parts)}; {move}"


def _bounds(found: Behaviour) -> str:
    if not found.clamped_changes:
        return ""
    return f" {100 * found.clamped_changes:.0f}% of its requested changes met a bound."


def _outcome(run: RecordedRun, task: Task) -> str:
    start, last = run.steps[0], run.steps[-1]
    missing = run.planned_steps - (len(run.steps) - 1)
    short = f" {count(missing, 'step')} of the run {'has' if missing == 1 else 'have'} no answer."
    regret = f": regret {score(last.regret)}, from {score(start.regret)} at the start"
    return (
        f"It would report {task.score.name} {score_words(last.test, task.score)} on the test rows"
        f"{'' if last.regret is None else regret}.{short if missing else ''}"
    )
