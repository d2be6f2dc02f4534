"""A whole study over Celery: a real Redis, two real workers, a run that only hands out steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.defs.executors.device_tags import CELERY_QUEUE
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.other_executors import (
    Started,
    insist_on_a_report_and_calls_made_once,
    on_a_device,
)
from contextcliff_dagster_tests.support.paths import EXECUTOR_SETTINGS
from contextcliff_dagster_tests.support.postgres import free_port

pytestmark = [
    pytest.mark.celery,
    pytest.mark.slow(reason="nine steps and three processes that import Dagster"),
    pytest.mark.timeout(600),
]

WORKER = ("celery", "-A", "dagster_celery.app", "worker", "--concurrency", "1")


@pytest.fixture
def start(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """The study, and a broker that runs."""
    port = free_port()
    broker, backend = (f"redis://127.0.0.1:{port}/{database}" for database in (0, 1))
    # What docs/scale.md asks of the machines of the workers.
    (tmp_path / "dagster_celery_config.py").write_text(
        f"broker_url = {broker!r}\nresult_backend = {backend!r}\nworker_prefetch_multiplier = 1\n"
    )
    on_a_device(
        tmp_path,
        monkeypatch,
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        CONTEXTCLIFF_DEVICES="left",
        CONTEXTCLIFF_EXECUTOR="celery",
        CONTEXTCLIFF_EXECUTOR_CONFIG=str(EXECUTOR_SETTINGS / "celery.yaml"),
        CONTEXTCLIFF_CELERY_BROKER=broker,
        CONTEXTCLIFF_CELERY_BACKEND=backend,
    )
    started = Started(tmp_path)
    try:
        started(
            "redis",
            *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(tmp_path)),
        )
        yield started
    finally:
        started.end()


def test_a_study_runs_over_workers_and_asks_its_model_on_the_queue_for_devices(
    start: Started, store: Store
) -> None:
    gpu = (*WORKER, "--max-tasks-per-child", "1", "-Q", CELERY_QUEUE, "-n", "gpu@here")
    start("worker", *WORKER, "-Q", "dagster", "-n", "plain@here")
    start("gpu_worker", *gpu)
    where = {
        entry.step_key: event.event_specific_data.metadata["Celery worker"].value
        for entry in start.profile_tiny()
        if (event := entry.dagster_event) is not None
        and "in celery worker" in (event.message or "")
    }
    assert where.pop("tiny__predictions") == "gpu@here"
    assert set(where.values()) == {"plain@here"}
    assert {"tiny__manifest", "tiny__report"} <= where.keys()
    insist_on_a_report_and_calls_made_once(store)
