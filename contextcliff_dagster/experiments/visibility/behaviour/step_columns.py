"""A step as columns of `tables.VISIBILITY_RECORDS`, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from contextcliff_dagster.experiments.visibility.behaviour.measures import Step
from contextcliff_dagster.experiments.visibility.tasks.clamping import ClampEvent, Reason

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
