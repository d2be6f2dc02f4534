"""The committed Dagster instances load, and say what this project needs of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.scheduler.scheduler import DagsterDaemonScheduler

from contextcliff_dagster.defs.home import PLACE_TAG
from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterInstance]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    with DagsterInstance.from_config(str(home)) as instance:
        yield instance


def test_it_tells_nobody_and_asks_nothing(instance: DagsterInstance) -> None:
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled


def test_slots_of_killed_runs_are_given_back(instance: DagsterInstance) -> None:
    assert instance.run_monitoring_enabled
    assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] > 0


def test_a_tick_that_failed_is_tried_again(instance: DagsterInstance) -> None:
    scheduler = instance.scheduler
    assert isinstance(scheduler, DagsterDaemonScheduler)
    # The daemon looks every 5 s: a database that is restarted is there again before it gives up.
    assert scheduler.max_tick_retries * 5 >= 60


def test_a_run_waits_for_a_code_server_that_is_restarted(instance: DagsterInstance) -> None:
    queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_user_code_failure_retries * queue.user_code_failure_retry_delay >= 120
    assert queue.max_concurrent_runs == 10
    assert [limit["key"] for limit in queue.tag_concurrency_limits] == [PLACE_TAG]


def test_a_pool_without_a_limit_of_its_own_runs_one_step_at_a_time(
    instance: DagsterInstance,
) -> None:
    assert instance.get_concurrency_config().pool_config.default_pool_limit == 1


def test_freshness_is_evaluated(instance: DagsterInstance) -> None:
    assert instance.freshness_enabled


def test_the_containers_instance_differs_in_storage_alone() -> None:
    home, containers = (
        yaml.safe_load((ROOT / folder / "dagster.yaml").read_text("utf-8"))
        for folder in ("dagster_home", "docker")
    )
    for key in ("storage", "compute_logs", "local_artifact_storage"):
        assert key not in home
        del containers[key]
    assert containers == home
