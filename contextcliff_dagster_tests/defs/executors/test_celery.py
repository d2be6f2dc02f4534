"""A whole study over Celery: a real Redis, two real workers, a run that only hands out steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.defs.executors.gpu import CELERY_QUEUE
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.other_executors import (
    CELERY_WORKER,
    Started,
    celery_steps,
    insist_on_a_report_and_calls_made_once,
    on_a_device,
    over_redis,
)

pytestmark = [
    pytest.mark.celery,
    pytest.mark.timeout(600),
]


@pytest.fixture
def start(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """The study, and a broker that runs."""
    started = Started(tmp_path)
    try:
        variables = over_redis(started, tmp_path)
        on_a_device(tmp_path, monkeypatch, CONTEXTCLIFF_DEVICES="left", **variables)
        yield started
    finally:
        started.end()


def test_a_study_runs_over_workers_and_asks_its_model_on_the_queue_for_devices(
    start: Started, store: Store
) -> None:
    gpu = (*CELERY_WORKER, "--max-tasks-per-child", "1", "-Q", CELERY_QUEUE, "-n", "gpu@here")
    start("worker", *CELERY_WORKER, "-Q", "dagster", "-n", "plain@here")
    start("gpu_worker", *gpu)
    where = dict(celery_steps(start.profile_tiny(store)))
    assert where.pop("tiny__predictions") == "gpu@here"
    assert set(where.values()) == {"plain@here"}
    assert {"tiny__manifest", "tiny__report"} <= where.keys()
    insist_on_a_report_and_calls_made_once(store)
