"""The sections of a study file about time and money: budget, schedule, sentinel, alerts."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, model_validator

from contextcliff_dagster.studies.section import Section
from contextcliff_dagster.studies.sections import MOST, MOST_TOKENS


class RegressionSection(Section):
    """What the check `no_shrink` takes for noise (docs/regression.md)."""

    flip_rate: float = Field(
        default=0.05, gt=0, lt=0.5, description="Share of answers that may differ between runs"
    )
    yearly_error: float = Field(
        default=0.05, gt=0, lt=1, description="Chance that an unchanged study fails in a year"
    )
    runs_per_year: int = Field(
        default=52, ge=1, le=10_000, description="`yearly_error` is divided by it"
    )


class CronSection(Section):
    """When something is measured by itself; its schedule has to be switched on in Dagster."""

    cron: str = Field(
        description="Five fields: minute, hour, day, month, weekday", examples=["0 3 * * 1"]
    )
    timezone: str = Field(
        default="UTC",
        description="In which `cron` is meant",
        examples=["Europe/Zurich"],
        json_schema_extra={"with": {"cron": "0 3 * * 1"}},
    )

    @model_validator(mode="after")
    def _cron_means_something(self) -> Self:
        check_cron(self.cron)
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError("'timezone' is unknown; write e.g. UTC or Europe/Zurich") from error
        return self


class ScheduleSection(CronSection):
    """A new campaign at every tick."""

    grace_hours: float = Field(
        default=24,
        gt=0,
        le=100_000,
        description="The report is stale so long after a tick it has missed",
        json_schema_extra={"with": {"cron": "0 3 * * 1"}},
    )


class SentinelSection(CronSection):
    """A few examples at the cap at every tick (docs/regression.md)."""

    cron: str = Field(default="0 5 * * *", description="Five fields, e.g. 0 5 * * *: daily at 5")
    examples: int = Field(
        default=20,
        ge=10,
        le=MOST,
        description="Of the bin that holds the cap; at most samples_per_bin",
    )
    runs_per_year: int = Field(
        default=365, ge=1, le=10_000, description="The year's error rate is divided by it"
    )


class AlertsSection(Section):
    """Who else is alerted when `no_shrink` or a run fails (docs/regression.md)."""

    webhook_env: str | None = Field(
        default=None,
        description="Environment variable with the URL: never the URL itself",
        examples=["ALERTS_URL"],
    )


class BudgetSection(Section):
    """Money: a hard limit, and the estimate above which the terminal asks first."""

    usd: float | None = Field(
        default=None,
        ge=0,
        le=MOST_TOKENS,
        description="A call that could exceed it is not sent",
        examples=[5],
    )
    confirm_above_usd: float = Field(
        default=1.0, ge=0, le=MOST_TOKENS, description="An estimate above it is asked about first"
    )


_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day", 1, 31, ""),
    ("month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    ("weekday", 0, 7, "sun mon tue wed thu fri sat"),
)
_PART = re.compile(r"(?:\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/(\d{1,2}))?")
_LONGEST_MONTH = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def check_cron(line: str) -> None:
    """Return if ``line`` is minute, hour, day, month and weekday, and such a moment comes.

    Raises:
        ValueError: it is not; the message names the field.
    """
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise ValueError("'cron' has five fields: minute, hour, day, month, weekday")
    _, _, days, months, _ = (
        _values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)
    )
    comes = any(min(days) <= _LONGEST_MONTH[month] for month in months)
    if not comes and fields[4] == "*":
        raise ValueError(f"'cron' names day {min(days)} of months that have no such day")


def _values(text: str, name: str, low: int, high: int, words: str) -> set[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        if name == "day" and part == "l":  # the last of the month
            values.add(28)
            continue
        match = _PART.fullmatch(part)
        first, last, step = match.groups() if match else (None, None, None)
        if first is None:
            start, end = low, high
        else:
            start = _number(first, low, words)
            end = _number(last, low, words) if last else (high if step else start)
        if match is None or step == "0":
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which means nothing")
        if not low <= start <= end <= high:
            raise ValueError(f"'cron' has {text[:40]!r} as {name}, which goes from {low} to {high}")
        values.update(range(start, end + 1, int(step or 1)))
    return values


def _number(text: str, low: int, words: str) -> int:
    if text in words.split():
        return words.split().index(text) + low
    return int(text) if text.isdecimal() else -1
