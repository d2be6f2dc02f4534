"""Measures of search behaviour that do not use scores: moves, repetition and circling.

Context-eval's stability metrics are included, so that results stay comparable with its figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, TypedDict

import numpy as np

from contextcliff_dagster.extensions.visibility.tasks.task import ClampEvent, Config, Reason, Space

Source = Literal["start", "model", "fallback"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run.

    Attributes:
        config: the trained configuration, with every parameter of the space.
        source: who chose the configuration.
        proposed: the parsed reply; None if it could not be parsed or no reply was requested.
        unparsable: whether a reply was received but could not be parsed.
        events: changes made to the proposal when it was clamped.
        base: the configuration that the proposal modifies; None for that of the previous step.
    """

    config: Config
    source: Source
    proposed: object | None = None
    unparsable: bool = False
    events: tuple[ClampEvent, ...] = ()
    base: Config | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour over the steps that a model proposed. A fraction is None if its denominator is 0.

    Attributes:
        steps: number of steps after the start.
        model_steps: number of steps that the model proposed.
        churn: mean distance from the previous step, 0 to 1, averaged over parameters.
        churn_by_parameter: churn of each parameter.
        changed_parameters: mean fraction of parameters that changed at all.
        stagnation: fraction of steps that repeat the previous step's configuration.
        oscillation: fraction of steps that return to an earlier configuration after leaving it.
        novelty: fraction of steps with a new configuration, 1 - stagnation - oscillation.
        clamped_changes: fraction of requested changes that exceeded a bound.
        fallback_share: fraction of steps that the model did not propose.
        unparsable_share: fraction of steps whose reply could not be parsed.
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
    """Return the behaviour in a run, given all its steps from the start on; raise KeyError."""
    later = steps[1:]
    places = [place for place, step in enumerate(steps) if place and step.source == "model"]
    moves = np.array([space.distances(steps[k - 1].config, steps[k].config) for k in places])
    keys = [config_key(step.config) for step in steps]
    repeats = sum(keys[k] == keys[k - 1] for k in places)
    returns = sum(keys[k] != keys[k - 1] and keys[k] in keys[:k] for k in places)
    changes, clamps = _changes(space, steps, places)
    return Behaviour(
        steps=len(later),
        model_steps=len(places),
        churn=float(moves.mean()) if places else None,
        churn_by_parameter=dict(zip(space.names, moves.mean(0).tolist(), strict=True))
        if places
        else {},
        changed_parameters=float((moves > 0).mean()) if places else None,
        stagnation=_share(repeats, len(places)),
        oscillation=_share(returns, len(places)),
        novelty=_share(len(places) - repeats - returns, len(places)),
        clamped_changes=_share(clamps, changes),
        fallback_share=_share(sum(step.source == "fallback" for step in later), len(later)),
        unparsable_share=_share(sum(step.unparsable for step in later), len(later)),
    )


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def config_key(config: Config) -> str:
    """Return the configuration as text for comparison: 1 equals 1.0, but True differs from both."""
    values = {name: float(v) if type(v) is int else v for name, v in config.items()}
    return json.dumps(values, sort_keys=True)


def _changes(space: Space, steps: Sequence[Step], own: Sequence[int]) -> tuple[int, int]:
    """Return how many parameter changes the proposals requested, and how many exceeded a bound."""
    changes = clamps = 0
    for k in own:
        base = steps[k].base or steps[k - 1].config
        beyond = {event.parameter for event in steps[k].events if event.out_of_bounds}
        proposal: Mapping[str, Any] | object = steps[k].proposed
        names = set(proposal) & set(space.names) if isinstance(proposal, Mapping) else set()
        new_values = {name for name in names if steps[k].config[name] != base[name]}
        changes += len(new_values | (names & beyond))
        clamps += len(names & beyond)
    return changes, clamps


_TINY = 1e-9


class Stability(TypedDict):
    """Stability of a trace, with the field names that context-eval uses."""

    instability_score: float
    average_churn: float
    total_churn: float
    total_steps: int
    churn_steps: int


class StabilityMetric:
    """Stateless measure of churn and instability in a run's configurations.

    >>> metric = StabilityMetric()
    >>> metric.calculate_config_distance({"depth": 4, "loss": "l1"}, {"depth": 4, "loss": "l2"})
    (1.0, ['loss'])
    >>> metric.evaluate_trace([{"config": {"x": x}} for x in "aab"])["total_churn"]
    1.0
    """

    def calculate_config_distance(
        self, config_a: Mapping[str, Any], config_b: Mapping[str, Any]
    ) -> tuple[float, list[str]]:
        """Return the distance between two configurations and the sorted keys in which they differ.

        The distance sums |a - b| / (max(|a|, |b|) + 1e-9) over keys with two numbers (booleans
        included) and 1 for other differences; equal values add 0. A missing key counts as None.
        """
        distance = 0.0
        distances = []
        for key in sorted(config_a.keys() | config_b.keys(), key=str):
            a, b = config_a.get(key), config_b.get(key)
            if a == b:
                continue
            distances.append(key)
            if isinstance(a, int | float) and isinstance(b, int | float):
                distance += abs(a - b) / (max(abs(a), abs(b)) + _TINY)
            else:
                distance += 1.0
        return distance, distances

    def evaluate_trace(self, trace_history: Sequence[Mapping[str, Any]]) -> Stability:
        """Return the stability of a run whose steps hold their configurations under ``config``.

        Raise TypeError for a value that JSON cannot hold.
        """
        keys: set[str] = set()
        repeats = 0
        for step in trace_history:
            key = json.dumps(step.get("config", step), sort_keys=True)
            repeats += key in keys
            keys.add(key)
        steps = len(trace_history)
        configs = [step.get("config", {}) for step in trace_history]
        churn = sum(self.calculate_config_distance(a, b)[0] for a, b in pairwise(configs))
        pairs = max(0, steps - 1)
        return {
            "instability_score": repeats / steps if steps else 0.0,
            "average_churn": churn / pairs if pairs else 0.0,
            "total_churn": float(churn),
            "total_steps": steps,
            "churn_steps": pairs,
        }


STEP_COLUMNS = ("chosen_by", "unparsable", "proposed", "events", "base_config", "config")


def columns_of(step: Step) -> dict[str, Any]:
    """Return the values of `STEP_COLUMNS` for a step after the start."""
    return {
        "chosen_by": step.source,
        "unparsable": step.unparsable,
        "proposed": None if step.proposed is None else as_json(step.proposed),
        "events": as_json([asdict(event) for event in step.events]),
        "base_config": as_json(step.base or {}),
        "config": as_json(step.config),
    }


def step_of(row: Mapping[str, Any]) -> Step:
    """Return the step stored in a record. Missing values may be None or nan (from pandas)."""
    proposal, unparsable = row["proposed"], row["unparsable"]
    return Step(
        config=json.loads(row["config"]),
        source="model" if row["chosen_by"] == "model" else "fallback",
        proposed=json.loads(proposal) if isinstance(proposal, str) else None,
        unparsable=unparsable is not None and unparsable == unparsable and bool(unparsable),
        events=tuple(_event(event) for event in json.loads(row["events"])),
        base=json.loads(row["base_config"]),
    )


def start_of(row: Mapping[str, Any]) -> Step:
    """Return the start of the run to which a record belongs."""
    return Step(json.loads(row["start_config"]), "start")


def as_json(value: Any) -> str:
    """Return ``value`` as JSON text for a column."""
    return json.dumps(value, ensure_ascii=False)


def _event(one: Mapping[str, Any]) -> ClampEvent:
    return ClampEvent(one["parameter"], one["proposed"], one["executed"], Reason(one["reason"]))
