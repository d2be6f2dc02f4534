"""Tests of what is changed of Dagster's own ways."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from contextcliff_dagster.cli.dagster_home import open_instance, shipped
from contextcliff_dagster.defs import dagster_internals
from contextcliff_dagster.store import Store


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def idle() -> None:
    """One step."""
    nothing()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    dagster_internals.close_databases()
    yield Store(tmp_path)
    dagster_internals.close_databases()


def runs_on_disk(home: Path) -> int:
    with sqlite3.connect(home / "history" / "runs.db") as database:
        return int(database.execute("select count(*) from runs").fetchone()[0])


def test_what_is_committed_is_seen_at_once_by_others(store: Store, tmp_path: Path) -> None:
    with open_instance(store) as instance:
        run = idle.execute_in_process(instance=instance).run_id
        events = [*instance.all_logs(run)]
        assert events
        assert runs_on_disk(tmp_path / "home") == 1
        with sqlite3.connect(tmp_path / "home" / "history" / "runs" / f"{run}.db") as database:
            (stored,) = database.execute("select count(*) from event_logs").fetchone()
        assert stored == len(events)


def test_runs_of_a_shell_belong_to_the_code_location_and_are_never_tried_again(
    store: Store,
) -> None:
    """Else the timeline of the UI leaves them out, and the daemon may ask again what was ended."""
    (location,) = yaml.safe_load(shipped("workspace.yaml").read_text())["load_from"]
    with open_instance(store) as instance:
        run = instance.get_run_by_id(idle.execute_in_process(instance=instance).run_id)
    assert run is not None
    origin = run.remote_job_origin
    assert origin is not None
    assert origin.job_name == "idle"
    assert origin.location_name == location["python_module"]["location_name"]
    assert origin.repository_origin.repository_name == "__repository__"
    assert run.tags["dagster/max_retries"] == "0"


def test_no_more_than_so_many_files_stay_open_and_all_are_closed_at_the_end(
    store: Store, tmp_path: Path
) -> None:
    with open_instance(store) as instance:
        for _ in range(dagster_internals._MOST_DATABASES):
            idle.execute_in_process(instance=instance)
        assert len(dagster_internals._engines) == dagster_internals._MOST_DATABASES
        assert [*tmp_path.rglob("*.db-wal")]
    dagster_internals.close_databases()
    assert not [*tmp_path.rglob("*.db-wal")]
    assert runs_on_disk(tmp_path / "home") == dagster_internals._MOST_DATABASES


def test_a_home_that_replaces_a_removed_one_is_the_one_written_to(
    store: Store, tmp_path: Path
) -> None:
    with open_instance(store) as instance:
        idle.execute_in_process(instance=instance)
    shutil.rmtree(tmp_path / "home")
    with open_instance(store) as instance:
        assert instance.get_runs_count() == 0
        idle.execute_in_process(instance=instance)
    assert runs_on_disk(tmp_path / "home") == 1


def _run_in_child(home: str) -> None:
    with dg.DagsterInstance.from_ref(dg.DagsterInstance.local_temp(home).get_ref()) as instance:
        idle.execute_in_process(instance=instance)


def test_a_forked_child_opens_connections_of_its_own(store: Store, tmp_path: Path) -> None:
    with open_instance(store) as instance:
        idle.execute_in_process(instance=instance)
        child = multiprocessing.get_context("fork").Process(
            target=_run_in_child, args=(str(tmp_path / "home"),)
        )
        child.start()
        child.join(120)
        assert child.exitcode == 0
        idle.execute_in_process(instance=instance)
        assert instance.get_runs_count() == 3
    assert runs_on_disk(tmp_path / "home") == 3
