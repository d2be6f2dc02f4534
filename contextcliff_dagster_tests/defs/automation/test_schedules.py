"""How old a report may grow: until the longest pause between two ticks, and the grace, are over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy

from contextcliff_dagster.defs import automation, dagster_internals
from contextcliff_dagster.defs.automation import longest_gap, report_freshness
from contextcliff_dagster.studies import Study


def test_a_report_outlives_the_weekend(study: Study) -> None:
    cron = "*/30 * * * 1-5"
    policy = report_freshness(study.changed(schedule={"cron": cron, "grace_hours": 24}))
    assert isinstance(policy, TimeWindowFreshnessPolicy)
    weekend = timedelta(days=2, minutes=30)  # from Friday, 23:30
    assert policy.fail_window.to_timedelta() == weekend + timedelta(hours=24)


@pytest.mark.parametrize(
    ("cron", "gap"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("*/7 8-17 * * 1,3", timedelta(days=4, hours=14, minutes=4)),
        ("0 0 * * *", timedelta(days=1)),
        ("0 3 * * 1", timedelta(days=7)),
        ("0 0,1 1 * *", timedelta(days=30, hours=23)),
        ("0 3 31 * *", timedelta(days=61)),  # from the 31st of March, for one
        ("0 3 * 1-6 *", timedelta(days=185)),
        ("0 3 1 1 *", timedelta(days=366)),
        ("0 3 29 2 *", timedelta(days=8 * 365 + 1)),  # 2100 is no leap year
    ],
)
def test_the_longest_pause_between_two_ticks(cron: str, gap: timedelta) -> None:
    assert longest_gap(cron) == gap


def test_a_tick_each_minute_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(start: float, cron: str, timezone: str) -> Iterator[datetime]:
        for tick in dagster_internals.cron_string_iterator(start, cron, timezone):
            read.append(tick)
            yield tick

    monkeypatch.setattr(automation, "cron_string_iterator", counted)
    longest_gap("* * * * *")
    assert len(read) < 2_500
