"""The records of one run as its start and steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.extensions.visibility.behaviour import Step, start_of, step_of


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
