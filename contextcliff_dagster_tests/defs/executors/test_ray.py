"""A whole study over Ray: a real Ray of one machine, and a step a Ray job."""

from __future__ import annotations

import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    pytest.mark.ray,
    pytest.mark.timeout(900),
]

# In a Python process and not by `ray start`: all that it starts ends with it.
HEAD = """
import os, sys, threading
for name in ("RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"):
    os.environ.pop(name, None)
import ray
ray.init(num_cpus=2, num_gpus=1, include_dashboard=True, dashboard_host="127.0.0.1",
         dashboard_port=int(sys.argv[1]), object_store_memory=100_000_000, _temp_dir=sys.argv[2])
threading.Event().wait()
"""


@pytest.fixture
def start(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """The study, and a Ray with one GPU, which is only a number."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    # Devices are those that Ray gives: none to a step that asked for none.
    on_a_device(
        tmp_path,
        monkeypatch,
        CONTEXTCLIFF_EXECUTOR="ray",
        CONTEXTCLIFF_EXECUTOR_CONFIG=str(EXECUTOR_SETTINGS / "ray.yaml"),
        RAY_ADDRESS=address,
        RAY_AUTH_MODE="disabled",
        RAY_USAGE_STATS_ENABLED="0",
    )
    folder = tempfile.mkdtemp(prefix="ray-")  # short: sockets lie in it
    started = Started(tmp_path)
    try:
        started("ray", sys.executable, "-c", HEAD, str(port), folder)
        started.until(lambda: answers(f"{address}/api/jobs/"))
        yield started
    finally:
        started.end()
        shutil.rmtree(folder, ignore_errors=True)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_a_study_runs_as_ray_jobs_and_its_model_on_the_device_that_ray_gives(
    start: Started, store: Store
) -> None:
    jobs = {
        entry.step_key
        for entry in start.profile_tiny(store)
        if "in Ray job dagster-step-" in entry.user_message
    }
    assert {"tiny__manifest", "tiny__predictions", "tiny__report"} <= jobs
    insist_on_a_report_and_calls_made_once(store)
