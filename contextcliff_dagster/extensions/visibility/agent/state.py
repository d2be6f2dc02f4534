"""What has happened in a run so far, as far as an agent may be shown it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from contextcliff_dagster.extensions.visibility.axes import Axes
from contextcliff_dagster.extensions.visibility.tasks.parameters import Config
from contextcliff_dagster.extensions.visibility.tasks.task import Task


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A configuration that was trained.

    Attributes:
        validation: its score on the rows that a search sees; None or nan where training failed.
        source: who chose it.
    """

    config: Config
    validation: float | None
    source: Literal["start", "model", "fallback"]

    @property
    def failed(self) -> bool:
        return self.validation is None or math.isnan(self.validation)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one step, as recorded."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RunState:
    """A run so far.

    Attributes:
        trials: the start, then one of each step.
        usage: one of each step, None where no tokens were recorded.

    Raises:
        ValueError: there is no start, or not one usage a step.
    """

    trials: tuple[ShownTrial, ...]
    usage: tuple[Usage | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.trials) != len(self.usage) + 1:
            raise ValueError("a run has a start, and one trial and one usage a step")

    def after(self, trial: ShownTrial, usage: Usage | None) -> RunState:
        """Return the run with one more step."""
        return replace(self, trials=(*self.trials, trial), usage=(*self.usage, usage))

    def current(self, task: Task, axes: Axes) -> ShownTrial:
        """Return the trial whose configuration a proposal is put on."""
        return self.trials[self.current_step(task, axes)]

    def current_step(self, task: Task, axes: Axes) -> int:
        """Return its step, 0 for the start: the last one, or the first of the best by validation.

        Where all training failed the best is the start.
        """
        if axes.base == "last":
            return len(self.trials) - 1
        sign = 1.0 if task.score.higher_is_better else -1.0
        values = [
            -math.inf if one.failed or one.validation is None else sign * one.validation
            for one in self.trials
        ]
        return values.index(max(values))

    def earlier(self, task: Task, axes: Axes) -> tuple[tuple[int, ShownTrial], ...]:
        """Return the last `axes.history` steps, oldest first, each with its number.

        The current one is not among them.
        """
        current = self.current_step(task, axes)
        others = [(k, one) for k, one in enumerate(self.trials) if k != current]
        return tuple(others[-axes.history :]) if axes.history else ()
