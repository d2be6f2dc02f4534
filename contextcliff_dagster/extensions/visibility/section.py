"""The key `visibility` of a study file: the axes of information shown to an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import count, islice, product
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, field_validator, model_validator

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.studies.sections import Section, listed

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

Text: TypeAlias = Literal["hidden", "placebo", "shown"]
"""How a text is shown; `placebo` replaces it by an unrelated text of the same length."""
Shown: TypeAlias = Literal["hidden", "shown"]
Base: TypeAlias = Literal["last", "best"]
"""Which configuration a proposal modifies."""
StartName: TypeAlias = Literal["default", "low", "neutral", "high"]
Level: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Axes:
    """A combination of levels, one for each axis.

    Attributes:
        task: the text about data and model.
        metric: the text about the score, which never states its direction.
        resources: tokens, cost and latency so far.
        bounds: lowest and highest value of each parameter, or its choices.
        direction: whether a higher or a lower score is better.
        history: how many earlier steps are listed with their scores.
        base: whether steps modify the last configuration or the best by validation score.
        start: stratum of the first configuration; `default` is the task's own start.
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
        """Return all levels as a slug, ``h5-t1m0r0b1d0-last-low``: 0 hidden, 1 shown, p placebo."""
        marks = {"hidden": "0", "shown": "1", "placebo": "p"}
        letters = "".join(
            f"{name[0]}{marks[getattr(self, name)]}"
            for name in ("task", "metric", "resources", "bounds", "direction")
        )
        return f"h{self.history}-{letters}-{self.base}-{self.start}"


AXES = tuple(axis.name for axis in fields(Axes))
"""Names of the axes in the order of the record columns."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A planned run of an agent: benchmark, seed and axes."""

    benchmark: str
    seed: int
    axes: Axes

    @property
    def key(self) -> str:
        """Return the partition key, such as ``digits-s000-h5-t1m0r0b1d0-last-low``."""
        return f"{self.benchmark}-s{self.seed:03d}-{self.axes.signature}"


def runs_of(section: VisibilitySection) -> tuple[PlannedRun, ...]:
    """Return a study's runs: every combination of levels for every benchmark and seed.

    The last axis changes fastest.
    """
    axes = [Axes(*chosen) for chosen in product(*section.levels.values())]  # type: ignore[arg-type]
    return tuple(
        PlannedRun(benchmark, seed, combination)
        for benchmark in section.benchmarks
        for seed in section.seed_numbers
        for combination in axes
    )


_MOST_RUNS = 100_000
_NEEDS: dict[str, Any] = {"with": {"benchmarks": ["toy"]}}
"""Key that every other key requires, added to the examples in docs/studies.md."""
_key: Any = partial(Field, json_schema_extra=_NEEDS)


def _levels(value: Any) -> Any:
    """Convert a value or list to levels, with true meaning `shown` and false `hidden`."""
    words = {True: "shown", False: "hidden"}
    return [words[level] if isinstance(level, bool) else level for level in listed(value)]


_Texts = Annotated[tuple[Text, ...], BeforeValidator(_levels), Field(min_length=1)]
_Shown = Annotated[tuple[Shown, ...], BeforeValidator(_levels), Field(min_length=1)]


class VisibilitySection(Section):
    """Settings of runs in which an agent tunes hyper-parameters with varied information."""

    benchmarks: Annotated[tuple[str, ...], BeforeValidator(listed), Field(min_length=1)] = Field(
        description="Tasks to tune: toy, digits, breast-cancer, wine, diabetes, friedman, or "
        "nomad, jigsaw, leaf, forest, housing once they are prepared",
        examples=[["toy", "friedman"]],
    )
    task: _Texts = _key(
        default=("hidden", "shown"),
        description="Text about data and model: `hidden`, `shown`, `placebo` (another text of this "
        "length)",
        examples=[["placebo", "shown"]],
    )
    metric: _Texts = _key(
        default=("hidden", "shown"),
        description="Text about the score: as `task`",
        examples=[["hidden"]],
    )
    resources: _Shown = _key(
        default=("hidden",),
        description="Tokens, cost and latency so far: `hidden`, `shown`",
        examples=[["hidden", "shown"]],
    )
    bounds: _Shown = _key(
        default=("hidden", "shown"),
        description="Bounds of each parameter: `hidden`, `shown`",
        examples=[["shown"]],
    )
    direction: _Shown = _key(
        default=("shown",),
        description="Whether a higher score is better: `hidden`, `shown`",
        examples=[["hidden", "shown"]],
    )
    history: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=1000)], ...],
        BeforeValidator(listed),
        Field(min_length=1),
    ] = _key(
        default=(0, 5),
        description="Number of earlier steps listed with scores",
        examples=[[0, 3]],
    )
    base: Annotated[tuple[Base, ...], BeforeValidator(listed), Field(min_length=1)] = _key(
        default=("last",),
        description="Configuration that each proposal changes: `last`, `best`",
        examples=[["last", "best"]],
    )
    start: Annotated[tuple[StartName, ...], BeforeValidator(listed), Field(min_length=1)] = _key(
        default=("low",),
        description="First configuration: with `low`, `neutral` or `high` score, or the `default`",
        examples=[["low", "high"]],
    )
    seeds: int = _key(
        default=6,
        ge=1,
        le=1000,
        description="Runs per combination, each with its own split, start and draws",
    )
    first_seed: int = _key(default=0, ge=0, le=100_000, description="First seed")
    # The defaults of both keys below are left out of definitions, whose digests name studies.
    skipped_seeds: tuple[Annotated[int, Field(strict=True, ge=0)], ...] = _key(
        default=(),
        exclude_if=lambda seeds: not seeds,
        description="Seeds to pass over; later ones take their place",
        examples=[[50, 51]],
    )
    landscape: Literal["full", "coarse"] = _key(
        default="full",
        exclude_if=lambda size: size == "full",
        description="`coarse`: regret by 64 configurations on 4 splits, not 128 on 20",
        examples=["coarse"],
    )
    steps: int = _key(default=10, ge=1, le=200, description="Proposals in a run")
    temperature: float = _key(
        default=0.0, ge=0, le=2, description="Temperature; above 0 the replies vary with the seed"
    )
    replies: Literal["free", "schema"] = _key(
        default="free",
        description="`schema`: the engine can only write an object of the parameters",
        examples=["schema"],
    )
    max_tokens: int = _key(default=256, ge=8, description="Longest reply in tokens")
    margin: float = _key(
        default=0.1, gt=0, le=1, description="Smallest regret difference that matters"
    )

    @field_validator("benchmarks", "skipped_seeds", *AXES)
    @classmethod
    def _are_different(cls, value: tuple[Level, ...]) -> tuple[Level, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a value is listed twice")
        return value

    @field_validator("benchmarks")
    @classmethod
    def _are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            for name in value:
                task_named(name)
        except StudyError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return value

    @model_validator(mode="after")
    def _is_no_endless_grid(self) -> VisibilitySection:
        runs = self.seeds * len(self.benchmarks)
        for levels in self.levels.values():
            runs *= len(levels)
        if runs > _MOST_RUNS:
            raise ValueError(f"{runs:,} runs are more than {_MOST_RUNS:,}; remove some levels")
        return self

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """Return the seeds: so many from the first one on, without the skipped ones."""
        numbers = (seed for seed in count(self.first_seed) if seed not in self.skipped_seeds)
        return tuple(islice(numbers, self.seeds))

    @property
    def is_single(self) -> bool:
        """Return whether this is one run from the benchmark's own start: it needs no landscape."""
        alone = all(len(levels) == 1 for levels in (self.benchmarks, *self.levels.values()))
        return alone and self.seeds == 1 and self.start == ("default",)

    @property
    def levels(self) -> dict[str, Sequence[Level]]:
        """Return the levels of each axis in the order of `AXES`."""
        return {name: getattr(self, name) for name in AXES}


def section_of(study: Study) -> VisibilitySection:
    """Return the value of the study's key `visibility`."""
    section: VisibilitySection = study.sections["visibility"]
    return section
