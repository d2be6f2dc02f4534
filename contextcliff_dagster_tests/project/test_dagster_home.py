"""The committed Dagster instances load, and say what this project needs of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import yaml
from dagster import DagsterInstance

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
