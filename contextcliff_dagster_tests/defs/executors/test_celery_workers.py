"""A task is lost when nobody has it, and not before; a step is then tried a few times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.defs.executors import celery_workers
from contextcliff_dagster.defs.executors.celery_workers import (
    MOST_TRIES,
    WatchedTask,
    celery_executor,
)
from contextcliff_dagster_tests.support.other_executors import Started, over_redis
from contextcliff_dagster_tests.support.requirements import require

pytestmark = pytest.mark.celery


@dg.op
def lethal() -> None:
    raise AssertionError("only workers run it, and there is none")


@dg.job(executor_def=celery_executor)
def one_step() -> None:
    lethal()


class OfDeadWorker:
    """What Celery hands back of a task whose process died."""

    result: Any = None

    def ready(self) -> bool:
        from celery.exceptions import WorkerLostError

        self.result = WorkerLostError("signal 9 (SIGKILL)")
        return True


@pytest.mark.parametrize(("retries", "tries"), [("enabled", MOST_TRIES), ("disabled", 1)])
def test_a_step_that_kills_its_workers_fails_at_last(
    retries: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("celery")
    submitted: list[str] = []

    def submit(app: Any, plan: Any, step: Any, *_: Any) -> OfDeadWorker:
        submitted.append(step.key)
        return OfDeadWorker()

    monkeypatch.setattr(celery_workers, "submit_celery_step", submit)
    config = {"execution": {"config": {"broker": "memory://", "retries": {retries: {}}}}}
    with (
        dg.DagsterInstance.get() as instance,
        dg.execute_job(dg.reconstructable(one_step), instance, run_config=config) as done,
    ):
        events = Counter(event.event_type_value for event in done.all_events)
        (failed,) = done.filter_events(lambda event: event.is_step_failure)
    assert submitted == ["lethal"] * tries
    assert events["STEP_UP_FOR_RETRY"] == tries - 1
    assert not done.success
    assert "signal 9 (SIGKILL)" in failed.step_failure_data.error.message


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    require("celery")
    started = Started(tmp_path)
    try:
        yield started
    finally:
        started.end()


def test_a_task_that_waits_is_not_lost_and_one_that_is_nowhere_is(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery import Celery

    for name in ("LOOK_EVERY_S", "LOST_AFTER_S"):
        monkeypatch.setattr(celery_workers, name, 0.0)
    monkeypatch.setattr(celery_workers, "ANSWER_WITHIN_S", 0.1)
    variables = over_redis(started, tmp_path)
    app = Celery(
        broker=variables["CONTEXTCLIFF_CELERY_BROKER"],
        backend=variables["CONTEXTCLIFF_CELERY_BACKEND"],
    )
    reasons: list[str] = []
    result = app.send_task("execute_plan", queue="dagster")
    task = WatchedTask(result, "dagster", "step s", reasons.append)  # type: ignore[arg-type]
    assert [task.ready() for _ in range(3)] == [False] * 3
    app.control.purge()  # of the default queue, which has nothing
    assert not task.ready()
    with app.connection_for_write() as connection:
        connection.default_channel.queue_purge("dagster")
    assert task.ready()
    task.get()
    assert reasons == ["The step s is lost: no worker knows of it."]
