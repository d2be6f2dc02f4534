"""How a model searched, whatever it scored: how far it moved, whether it stayed or went in circles.

Configurations in, figures out. The stability metrics of context-eval are among them, so that its
figures stay comparable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypedDict

import numpy as np

from contextcliff_dagster.extensions.visibility.tasks.task import (
    ClampEvent,
    Config,
    Reason,
    Space,
    Value,
)

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


_TINY = 1e-9


class Stability(TypedDict):
    """Stability of one trace, under the names of context-eval."""

    instability_score: float
    average_churn: float
    total_churn: float
    total_steps: int
    churn_steps: int


class StabilityMetric:
    """Churn and instability of the configurations of a run; keeps nothing between calls.

    >>> metric = StabilityMetric()
    >>> metric.calculate_config_distance({"depth": 4, "loss": "l1"}, {"depth": 4, "loss": "l2"})
    (1.0, ['loss'])
    >>> metric.evaluate_trace([{"config": {"x": x}} for x in "aab"])["total_churn"]
    1.0
    """

    def calculate_config_distance(
        self, config_a: Mapping[str, Any], config_b: Mapping[str, Any]
    ) -> tuple[float, list[str]]:
        """Return the distance of two configurations, and the keys that differ, sorted.

        The sum over all keys of |a - b| / (max(|a|, |b|) + 1e-9) for two numbers, booleans
        included, else 1; equal values count 0. A missing key is None.
        """
        distance = 0.0
        changed = []
        for key in sorted(config_a.keys() | config_b.keys(), key=str):
            a, b = config_a.get(key), config_b.get(key)
            if a == b:
                continue
            changed.append(key)
            if isinstance(a, int | float) and isinstance(b, int | float):
                distance += abs(a - b) / (max(abs(a), abs(b)) + _TINY)
            else:
                distance += 1.0
        return distance, changed

    def evaluate_trace(self, trace_history: Sequence[Mapping[str, Any]]) -> Stability:
        """Return the stability of a run's steps, each with its configuration under ``config``.

        Raises:
            TypeError: a configuration has a value that JSON cannot hold.
        """
        seen: set[str] = set()
        repeated = 0
        for step in trace_history:
            written = json.dumps(step.get("config", step), sort_keys=True)
            repeated += written in seen
            seen.add(written)
        steps = len(trace_history)
        configs = [step.get("config", {}) for step in trace_history]
        churn = sum(self.calculate_config_distance(a, b)[0] for a, b in pairwise(configs))
        pairs = max(0, steps - 1)
        return {
            "instability_score": repeated / steps if steps else 0.0,
            "average_churn": churn / pairs if pairs else 0.0,
            "total_churn": float(churn),
            "total_steps": steps,
            "churn_steps": pairs,
        }


STEP_COLUMNS = ("chosen_by", "unparsable", "proposed", "events", "base_config", "config")


def columns_of(step: Step) -> dict[str, Any]:
    """Return `STEP_COLUMNS` of a step after the start."""
    return {
        "chosen_by": step.source,
        "unparsable": step.unparsable,
        "proposed": None if step.proposed is None else as_json(step.proposed),
        "events": as_json([asdict(event) for event in step.events]),
        "base_config": as_json(step.base or {}),
        "config": as_json(step.config),
    }


def step_of(row: Mapping[str, Any]) -> Step:
    """Return the step of a record; missing values may be None or nan, as pandas writes them."""
    proposed, unparsable = row["proposed"], row["unparsable"]
    return Step(
        config=json.loads(row["config"]),
        source="model" if row["chosen_by"] == "model" else "fallback",
        proposed=json.loads(proposed) if isinstance(proposed, str) else None,
        unparsable=unparsable is not None and unparsable == unparsable and bool(unparsable),
        events=tuple(_event(one) for one in json.loads(row["events"])),
        base=json.loads(row["base_config"]),
    )


def start_of(row: Mapping[str, Any]) -> Step:
    """Return the start of the run of a record."""
    return Step(json.loads(row["start_config"]), "start")


def as_json(value: Any) -> str:
    """Return ``value`` as the columns hold it."""
    return json.dumps(value, ensure_ascii=False)


def _event(one: Mapping[str, Any]) -> ClampEvent:
    return ClampEvent(one["parameter"], one["proposed"], one["executed"], Reason(one["reason"]))
