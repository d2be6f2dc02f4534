"""The conversation of a run: a reply is read, trained, and the next prompt rests on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

from contextcliff_dagster.extensions.visibility.agent.prompts import prompt_of
from contextcliff_dagster.extensions.visibility.agent.replies import parse_reply
from contextcliff_dagster.extensions.visibility.agent.state import RunState, ShownTrial, Usage
from contextcliff_dagster.extensions.visibility.axes import PlannedRun
from contextcliff_dagster.extensions.visibility.behaviour import Step
from contextcliff_dagster.extensions.visibility.landscape.strata import start_of
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.clamping import clamp
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation
from contextcliff_dagster.scoring.parse import parse_answer

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.landscape.grounds import Ground
    from contextcliff_dagster.extensions.visibility.landscape.table import Landscape
    from contextcliff_dagster.extensions.visibility.tasks.parameters import Config
    from contextcliff_dagster.extensions.visibility.tasks.task import Task
    from contextcliff_dagster.store import Store


@dataclass(frozen=True, slots=True)
class Tried:
    """A step with the scores of its configuration. ``usage``: None where no call was made."""

    step: Step
    scores: Evaluation
    usage: Usage | None = None


History: TypeAlias = tuple[Tried, ...]
"""The start, then the steps so far."""


class Scores(Protocol):
    """Where the scores of configurations come from."""

    def evaluation(self, config: Config, split: int) -> Evaluation:
        """Return the scores of a configuration on the split of a seed; see `Trainings`."""


@dataclass(frozen=True)
class Bench:
    """A benchmark as runs use it.

    Attributes:
        task: what is tuned.
        trainings: the scores of its configurations.
        landscape: where starts come from; None: all runs begin with the task's own, and nothing is
            trained: for an estimate.
    """

    task: Task
    trainings: Scores
    landscape: Landscape | None
    _starts: dict[tuple[str, int], Tried] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, store: Store, ground: Ground | None) -> Bench:
        """Return the benchmark ``name``; ``ground`` None: see `landscape`.

        Raises:
            StudyError: there is none of this name.
        """
        task = task_named(name)
        if ground is None:
            return cls(task, Trainings(task, store, ""), None)
        return cls(task, Trainings(task, store, ground.data_sha256), ground.landscape)

    def begin(self, run: PlannedRun) -> History:
        """Return the start of a run.

        Raises:
            DataError: a stratum has no configuration, or the data are not prepared.
            StoreError: see `Trainings.evaluation`.
        """
        key = run.axes.start, run.seed
        if key not in self._starts:
            config = self._first(run)
            scores = self._scores(config, run.seed)
            self._starts[key] = Tried(Step(config, "start"), scores)
        return (self._starts[key],)

    def after(
        self, run: PlannedRun, history: History, reply: str | None, usage: Usage | None
    ) -> History:
        """Return the history with one step more: what ``reply`` proposes, trained.

        A reply that sets no parameter leaves the configuration as it was; that step is not the
        model's. ``reply`` None: there was none.

        Raises:
            DataError, StoreError: see `Trainings.evaluation`.
        """
        base = self.state(history).current(self.task, run.axes).config
        # Reasoning before the answer is no part of it.
        parsed = parse_reply(None if reply is None else parse_answer(reply).visible)
        if parsed.proposal is None:
            step = Step(dict(base), "fallback", unparsable=parsed.unparsable, base=base)
        else:
            clamped = clamp(self.task.space, parsed.proposal)
            step = Step(
                config=clamped.onto(base),
                source="model" if clamped.values else "fallback",
                proposed=parsed.recorded,
                events=clamped.events,
                base=base,
            )
        return (*history, Tried(step, self._scores(step.config, run.seed), usage))

    def prompt(self, run: PlannedRun, history: History) -> tuple[str, str]:
        """Return what the model reads next: what stays the same in a run, and the rest."""
        return prompt_of(self.task, run.axes, self.state(history))

    def state(self, history: History) -> RunState:
        """Return what may be shown of a history."""
        trials = tuple(
            ShownTrial(one.step.config, _finite(one.scores.validation), one.step.source)
            for one in history
        )
        return RunState(trials, tuple(one.usage for one in history[1:]))

    def _first(self, run: PlannedRun) -> Config:
        stratum = run.axes.start
        if stratum == "default" or self.landscape is None:
            return self.task.space.start
        return start_of(self.landscape, stratum, run.seed).config

    def _scores(self, config: Config, seed: int) -> Evaluation:
        if self.landscape is None:
            return Evaluation(0.0, 0.0)
        return self.trainings.evaluation(config, seed)


@dataclass(frozen=True)
class Benches:
    """The benchmarks of a study by name, made when they are asked for.

    ``grounds``: by benchmark; without one, see `Bench`.
    """

    store: Store
    grounds: Mapping[str, Ground]

    @cached_property
    def _made(self) -> dict[str, Bench]:
        return {}

    def __getitem__(self, name: str) -> Bench:
        if name not in self._made:
            self._made[name] = Bench.of(name, self.store, self.grounds.get(name))
        return self._made[name]


def _finite(score: float) -> float | None:
    return score if score - score == 0 else None
