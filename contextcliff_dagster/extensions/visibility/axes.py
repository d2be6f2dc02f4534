"""What an agent is shown: one level of each axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.section import VisibilitySection

Text: TypeAlias = Literal["hidden", "placebo", "shown"]
"""`placebo`: a text of the same length that says nothing of the task."""
Shown: TypeAlias = Literal["hidden", "shown"]
Base: TypeAlias = Literal["last", "best"]
"""The configuration that a proposal is put on."""
StartName: TypeAlias = Literal["default", "low", "neutral", "high"]
Level: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Axes:
    """One combination of levels.

    Attributes:
        task: the text about data and model.
        metric: the text about the score; it never says which direction is better.
        resources: tokens, cost and latency so far.
        bounds: lowest and highest value of each parameter, or its choices.
        direction: whether a higher or a lower score is better.
        history: steps before the current one that are listed, with their scores.
        base: steps go on from the last configuration, or from the best by validation score.
        start: stratum of the first configuration, `default` the task's own.
    """

    task: Text = "hidden"
    metric: Text = "hidden"
    resources: Shown = "hidden"
    bounds: Shown = "hidden"
    direction: Shown = "hidden"
    history: int = 0
    base: Base = "last"
    start: StartName = "default"

    @property
    def signature(self) -> str:
        """All levels as a slug: ``h5-t1m0r0b1d0-last-low``; 0 hidden, 1 shown, p placebo."""
        marks = {"hidden": "0", "shown": "1", "placebo": "p"}
        shown = "".join(
            f"{name[0]}{marks[getattr(self, name)]}"
            for name in ("task", "metric", "resources", "bounds", "direction")
        )
        return f"h{self.history}-{shown}-{self.base}-{self.start}"


AXES = tuple(one.name for one in fields(Axes))
"""Names of the axes, in the order of the records' columns."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of an agent: a benchmark, a seed, and what it is shown."""

    benchmark: str
    seed: int
    axes: Axes

    @property
    def key(self) -> str:
        """The partition's key: ``digits-s000-h5-t1m0r0b1d0-last-low``."""
        return f"{self.benchmark}-s{self.seed:03d}-{self.axes.signature}"


def combinations(levels: dict[str, Sequence[Level]]) -> Iterator[Axes]:
    """Yield every combination of levels, axis -> levels, the last axis changing fastest."""
    for chosen in product(*(levels[name] for name in AXES)):
        yield Axes(**dict(zip(AXES, chosen, strict=True)))  # type: ignore[arg-type]


def runs_of(section: VisibilitySection) -> tuple[PlannedRun, ...]:
    """Return the runs of a study: of each benchmark every seed, of each seed every combination."""
    axes = tuple(combinations(section.levels))
    return tuple(
        PlannedRun(benchmark, seed, one)
        for benchmark in section.benchmarks
        for seed in range(section.first_seed, section.first_seed + section.seeds)
        for one in axes
    )
