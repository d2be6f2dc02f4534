"""The key `visibility` of a study file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.axes import (
    AXES,
    Base,
    Level,
    Shown,
    StartName,
    Text,
)
from contextcliff_dagster.studies.sections import Section, listed

_MOST_RUNS = 100_000
_NEEDS: dict[str, Any] = {"with": {"benchmarks": ["toy"]}}
"""What every other key needs next to it, for the examples in docs/studies.md."""
_key: Any = partial(Field, json_schema_extra=_NEEDS)


def _levels(value: Any) -> Any:
    """One level or a list of them; true and false are `shown` and `hidden`."""
    words = {True: "shown", False: "hidden"}
    return [words[one] if isinstance(one, bool) else one for one in listed(value)]


_Texts = Annotated[tuple[Text, ...], BeforeValidator(_levels), Field(min_length=1)]
_Shown = Annotated[tuple[Shown, ...], BeforeValidator(_levels), Field(min_length=1)]


class VisibilitySection(Section):
    """An agent tunes hyper-parameters step by step, in every combination of what it is shown."""

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
        description="Earlier steps that are listed with their scores",
        examples=[[0, 3]],
    )
    base: Annotated[tuple[Base, ...], BeforeValidator(listed), Field(min_length=1)] = _key(
        default=("last",),
        description="Configuration that a proposal is put on: `last`, `best`",
        examples=[["last", "best"]],
    )
    start: Annotated[tuple[StartName, ...], BeforeValidator(listed), Field(min_length=1)] = _key(
        default=("low",),
        description="First configuration: of `low`, `neutral` or `high` score, or `default`",
        examples=[["low", "high"]],
    )
    seeds: int = _key(
        default=6,
        ge=1,
        le=1000,
        description="Runs of each combination, each with a split, a start and draws of its own",
    )
    first_seed: int = _key(default=0, ge=0, le=100_000, description="The first of the seeds")
    steps: int = _key(default=10, ge=1, le=200, description="Proposals in a run")
    temperature: float = _key(
        default=0.0, ge=0, le=2, description="Of the model's replies; above 0 the seed draws"
    )
    replies: Literal["free", "schema"] = _key(
        default="free",
        description="`schema`: the engine can write nothing but an object of the parameters",
        examples=["schema"],
    )
    max_tokens: int = _key(default=256, ge=8, description="Longest reply")
    margin: float = _key(
        default=0.1, gt=0, le=1, description="Difference of the regret that matters"
    )

    @field_validator("benchmarks", *AXES)
    @classmethod
    def _are_different(cls, value: tuple[Level, ...]) -> tuple[Level, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a value is listed twice")
        return value

    @field_validator("benchmarks")
    @classmethod
    def _are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named

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
            raise ValueError(f"{runs:,} runs are more than {_MOST_RUNS:,}; leave out some levels")
        return self

    @property
    def levels(self) -> dict[str, Sequence[Level]]:
        """The levels of each axis, in the order of `axes.AXES`."""
        return {name: getattr(self, name) for name in AXES}
