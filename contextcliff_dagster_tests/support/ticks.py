"""Ticks of schedules and sensors, evaluated in this process as a code server does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import dagster as dg


def schedule_tick(
    schedule: dg.ScheduleDefinition,
    instance: dg.DagsterInstance,
    at: datetime,
    resources: Mapping[str, Any] | None = None,
) -> list[dg.RunRequest]:
    """What the schedule requests at a tick; ``instance``: one that is not ephemeral."""
    with dg.build_schedule_context(
        instance=instance, scheduled_execution_time=at, resources=dict(resources or {})
    ) as context:
        return list(schedule.evaluate_tick(context).run_requests or ())


def sensor_tick(
    sensor: dg.SensorDefinition,
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    resources: Mapping[str, Any] | None = None,
    cursor: str | None = None,
) -> tuple[list[dg.RunRequest], str | None]:
    """What the sensor requests, and its new cursor; ``instance``: one that is not ephemeral."""
    with dg.build_sensor_context(
        instance_ref=instance.get_ref(),
        cursor=cursor,
        resources=dict(resources or {}),
        repository_def=definitions.get_repository_def(),
    ) as context:
        data = sensor.evaluate_tick(context)
        return list(data.run_requests or ()), data.cursor
