"""Conclusions of an experiment: results, checks and their outcomes, an alarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class CheckSpec:
    """A condition that must hold before a result is believed.

    ``of``: whether records or results are checked. ``blocking``: a failure ends the run.
    """

    name: str
    description: str
    of: Literal["records", "result"] = "records"
    blocking: bool = False


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check. ``error``: a failure is an error, not a warning.

    ``passed`` is None where there is nothing to judge: the check is skipped, with the reason.
    ``values``: numbers and texts to show with it. ``rows``: tables to show, by name.
    """

    name: str
    passed: bool | None
    why: str
    error: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Alarm:
    """An alert for the study's channels, sent once for each ``subjects`` of a campaign.

    ``event`` names it for programs, ``sentence`` says it, ``details`` are JSON-ready.
    """

    event: str
    campaign: str
    subjects: Sequence[str]
    sentence: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """The conclusions of an experiment from one campaign.

    ``results``: one per model (or one for all), of the experiment's `Experiment.result`.
    ``checks``: the outcomes of those checks that are ``of="result"``. ``alarm``: what the alert
    channels get.
    """

    results: Sequence[Any]
    checks: Sequence[CheckOutcome] = ()
    alarm: Alarm | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
