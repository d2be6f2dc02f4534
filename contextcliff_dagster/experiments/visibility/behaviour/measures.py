"""How a model searched: how far it moved, whether it stayed or went round in circles.

Only steps that the model proposed count; a step of a fallback is nobody's behaviour. Distances are
within the bounds and on the scale of each parameter, so that a space of many parameters, or of
large numbers, churns no more than another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from contextcliff_dagster.experiments.visibility.tasks.clamping import ClampEvent
from contextcliff_dagster.experiments.visibility.tasks.parameters import Config, Space, Value

Source = Literal["start", "model", "fallback"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run.

    Attributes:
        config: what was trained, every parameter of the space.
        source: who chose it.
        proposed: the reply as parsed; None where it could not be parsed, or none was asked for.
        unparsable: a reply came, and could not be parsed.
        events: what was changed in the proposal.
        base: the configuration that the proposal was put on; None for the step before.
    """

    config: Config
    source: Source
    proposed: object | None = None
    unparsable: bool = False
    events: tuple[ClampEvent, ...] = ()
    base: Config | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour over the steps that a model proposed; every share is None where it is of nothing.

    Attributes:
        steps: steps after the start.
        model_steps: those that the model proposed.
        churn: mean distance from the step before, 0 to 1, mean over parameters.
        churn_by_parameter: the same of each parameter.
        changed_parameters: mean share of parameters that changed, however little.
        stagnation: share of steps that repeat the step before.
        oscillation: share of steps that return to an earlier configuration after leaving it.
        novelty: share of steps with a configuration not seen before; the three add up to 1.
        clamped_changes: share of the changes asked for that met a bound.
        fallback_share: share of steps that are not the model's.
        unparsable_share: share of steps whose reply could not be parsed.
    """

    steps: int
    model_steps: int
    churn: float | None
    churn_by_parameter: Mapping[str, float]
    changed_parameters: float | None
    stagnation: float | None
    oscillation: float | None
    novelty: float | None
    clamped_changes: float | None
    fallback_share: float | None
    unparsable_share: float | None


def behaviour_of(space: Space, steps: Sequence[Step]) -> Behaviour:
    """Return the behaviour of a run whose first step is its start.

    Raises:
        KeyError: a configuration lacks a parameter of the space.
    """
    later = steps[1:]
    own = [place for place, step in enumerate(steps) if place and step.source == "model"]
    moved = np.array([space.distances(steps[k - 1].config, steps[k].config) for k in own])
    written = [_key(space, step.config) for step in steps]
    stayed = sum(written[k] == written[k - 1] for k in own)
    returned = sum(written[k] != written[k - 1] and written[k] in written[:k] for k in own)
    asked, clamped = _changes(space, steps, own)
    return Behaviour(
        steps=len(later),
        model_steps=len(own),
        churn=float(moved.mean()) if own else None,
        churn_by_parameter=dict(zip(space.names, moved.mean(0).tolist(), strict=True))
        if own
        else {},
        changed_parameters=float((moved > 0).mean()) if own else None,
        stagnation=_share(stayed, len(own)),
        oscillation=_share(returned, len(own)),
        novelty=_share(len(own) - stayed - returned, len(own)),
        clamped_changes=_share(clamped, asked),
        fallback_share=_share(sum(step.source == "fallback" for step in later), len(later)),
        unparsable_share=_share(sum(step.unparsable for step in later), len(later)),
    )


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def _key(space: Space, config: Config) -> str:
    """The configuration as text: 1 and 1.0 are one value, True is not."""
    values: list[Value] = []
    for name in space.names:
        value = config[name]
        values.append(float(value) if type(value) is int else value)
    return json.dumps(values)


def _changes(space: Space, steps: Sequence[Step], own: Sequence[int]) -> tuple[int, int]:
    """How many parameters proposals asked to change, and how many of those met a bound."""
    asked = clamped = 0
    for k in own:
        base = steps[k].base or steps[k - 1].config
        beyond = {event.parameter for event in steps[k].events if event.out_of_bounds}
        proposed: Mapping[str, Any] | object = steps[k].proposed
        named = set(proposed) & set(space.names) if isinstance(proposed, Mapping) else set()
        changed = {name for name in named if steps[k].config[name] != base[name]}
        asked += len(changed | (named & beyond))
        clamped += len(named & beyond)
    return asked, clamped
