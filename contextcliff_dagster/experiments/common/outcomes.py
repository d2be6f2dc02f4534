"""Conclusions of an experiment: results, checks and their outcomes, an alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class CheckSpec:
    """A condition that a result must meet.

    ``of``: whether it checks records or results. ``blocking``: whether a failure ends the run.
    """

    name: str
    description: str
    of: Literal["records", "result"] = "records"
    blocking: bool = False


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check. ``error``: whether a failure is an error or a warning.

    ``passed`` is None if there is nothing to judge: the check is skipped, with a reason.
    ``values``: numbers and texts to show. ``rows``: tables to show, by name.
    """

    name: str
    passed: bool | None
    why: str
    error: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Alarm:
    """An alert for the study's channels, sent once per campaign and ``subjects``.

    ``event``: name for programs; ``sentence``: text for people; ``details``: JSON-ready.
    """

    event: str
    campaign: str
    subjects: Sequence[str]
    sentence: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """The conclusions of an experiment from one campaign.

    ``results``: one per model (or one for all), of type `Experiment.result`. ``alarm``: the alert
    for the channels, if any.
    """

    results: Sequence[Any]
    alarm: Alarm | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
