"""contextcliff.duckdb is replaced whole, whoever has it open; its tables are there for others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.components import StudyComponent
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.defs.asset_specs import refusals_raised
from contextcliff_dagster.defs.resources import DUCKDB
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support import warehouse
from contextcliff_dagster_tests.support.building_process import QUIET, build, started
from contextcliff_dagster_tests.support.child_processes import sleeps, wait_until
from contextcliff_dagster_tests.support.paths import DOCS
from contextcliff_dagster_tests.support.tiny_study import TINY

pytestmark = pytest.mark.usefixtures("measured", "unrecorded")

HOLDER = """
import duckdb, sys
path, mode, *statements = sys.argv[1:]
connection = duckdb.connect(path, read_only=mode == "read")
for statement in [*statements, None]:
    print("ready", flush=True)
    sys.stdin.readline()
    connection.execute(statement or "SELECT 1")
print(connection.execute("SELECT count(*) FROM cliffs").fetchone()[0], flush=True)
sys.stdin.readline()
connection.close()
"""
"""Holds a database open, runs a statement a line that is typed, counts, and closes it."""
CHANGE = "INSERT INTO cliffs SELECT * FROM cliffs LIMIT 1"


def cliffs(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM cliffs").fetchone() or (-1,)
    return int(count)


def files(store: Store) -> list[str]:
    """Names of the database's files: also temporary ones, and logs of changes."""
    return sorted(path.name for path in store.root.glob("*contextcliff.duckdb*"))


def built_before(store: Store) -> None:
    """The database shows two models, and the next one will show none."""
    build(store.root)
    assert cliffs(store.duckdb_path) == 2
    for path in store.root.glob("*/profiles/*/*/cliffs.json"):
        path.unlink()


@contextmanager
def holder(store: Store, mode: str, *statements: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(store.duckdb_path), mode, *statements]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert heard(process) == "ready"
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def typed(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_reader_keeps_the_old_file(store: Store) -> None:
    built_before(store)
    with holder(store, "read") as reader:
        assert build(store.root).success
        assert cliffs(store.duckdb_path) == 0
        typed(reader)
        assert heard(reader) == "2"
    assert files(store) == ["contextcliff.duckdb"]


@pytest.mark.parametrize("killed", [False, True])
def test_changes_of_a_writer_stay_in_the_old_file(store: Store, killed: bool) -> None:
    built_before(store)
    with holder(store, "write", CHANGE) as writer:
        typed(writer)
        assert heard(writer) == "ready"
        assert "contextcliff.duckdb.wal" in files(store)
        assert build(store.root).success
        assert cliffs(store.duckdb_path) == 0
        if killed:
            writer.kill()
        else:
            typed(writer)
            assert heard(writer) == "3"
            typed(writer)
        writer.wait()
    assert cliffs(store.duckdb_path) == 0
    assert files(store) == ["contextcliff.duckdb"]


def test_a_change_made_after_the_rename_is_undone_by_the_next_run(store: Store) -> None:
    built_before(store)
    with holder(store, "write", CHANGE) as writer:
        assert build(store.root).success
        typed(writer)
        assert heard(writer) == "ready"
        with pytest.raises(duckdb.IOException, match="does not match"):
            cliffs(store.duckdb_path)
        assert build(store.root).success
        assert cliffs(store.duckdb_path) == 0


def test_a_killed_run_leaves_the_old_file_and_the_next_one_tidies_up(store: Store) -> None:
    built_before(store)
    with started(store.root) as run:
        assert [heard(run), heard(run)] == ["begins", "half"]
        run.kill()
        run.wait()
    assert cliffs(store.duckdb_path) == 2
    (left,) = (name for name in files(store) if name.endswith(".tmp"))
    (store.root / f"{left}.tmp").mkdir()  # where DuckDB puts what does not fit into memory
    other = store.root / ".contextcliff.duckdb.mine.tmp"
    other.touch()
    assert build(store.root).success
    assert cliffs(store.duckdb_path) == 0
    assert files(store) == [other.name, "contextcliff.duckdb"]


def test_two_runs_at_once_take_turns(store: Store) -> None:
    built_before(store)
    with started(store.root) as first:
        assert [heard(first), heard(first)] == ["begins", "half"]
        with started(store.root) as second:
            assert heard(second) == "begins"
            wait_until(lambda: sleeps(second.pid))
            typed(first)
            assert first.wait() == 0
            assert heard(second) == "half"
            assert cliffs(store.duckdb_path) == 0
            typed(second)
            assert second.wait() == 0
    assert cliffs(store.duckdb_path) == 0
    assert files(store) == ["contextcliff.duckdb"]


def test_a_file_that_cannot_be_read_leaves_the_old_database(store: Store) -> None:
    built_before(store)
    (broken, *_) = sorted(store.root.glob("tiny/eval_records/**/*.parquet"))
    broken.write_bytes(b"no Parquet")
    with pytest.raises(StoreError, match=r"stays as it was.*delete it"), refusals_raised():
        build(store.root)
    assert cliffs(store.duckdb_path) == 2
    broken.unlink()
    build(store.root)
    assert files(store) == ["contextcliff.duckdb"]


def test_the_resource_says_where_the_file_is(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "own" / "my [database].db"
    link = tmp_path / "link.db"
    link.symlink_to(path)
    done = build(store.root, **{DUCKDB: DuckDBResource(database=str(link))})
    (made,) = done.asset_materializations_for_node("database")
    assert made.metadata["path"].value == str(path)
    assert cliffs(link) == cliffs(path) == 2
    assert link.is_symlink()
    assert not store.duckdb_path.exists()
    assert path.stat().st_mode & 0o077 == 0


def test_a_database_that_is_no_file_is_filled_in_place(store: Store) -> None:
    kept = duckdb.connect()

    class Elsewhere(DuckDBResource):
        @contextmanager
        def get_connection(self) -> Iterator[Any]:
            yield kept

    for address, shown in ((":memory:", ":memory:"), ("md:mine?motherduck_token=x", "md:mine")):
        done = build(store.root, **{DUCKDB: Elsewhere(database=address)})
        (made,) = done.asset_materializations_for_node("database")
        assert made.metadata["path"].value == shown
        assert kept.execute("SELECT count(*) FROM cliffs").fetchone() == (2,)
    assert not files(store)


def test_an_io_manager_of_a_project_gets_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("dagster_duckdb_pandas") is None:
        monkeypatch.setitem(sys.modules, "dagster_duckdb_pandas", warehouse)
    path = tmp_path / "warehouse.duckdb"
    page = (DOCS / "ui.md").read_text("utf-8").split("\n## SQL, and the tables")[1]
    written = page.split("```python\n")[1].split("```")[0]
    assert "/srv/warehouse.duckdb" in written
    with create_defs_folder_sandbox() as sandbox:
        (sandbox.defs_folder_path / "warehouse.py").write_text(
            written.replace("/srv/warehouse.duckdb", str(path)), encoding="utf-8"
        )
        study = {
            "type": "contextcliff_dagster.components.StudyComponent",
            "attributes": yaml.safe_load(TINY),
        }
        sandbox.scaffold_component(StudyComponent, "tiny", defs_yaml_contents=study)
        with sandbox.build_all_defs() as defs:
            job = defs.resolve_implicit_global_asset_job_def()
            names = ("database", "eval_records", "cliffs", "bins")
            asked = [dg.AssetKey(["contextcliff", name]) for name in names]
            for _ in range(2):  # what was there is replaced
                assert job.execute_in_process(asset_selection=asked, run_config=QUIET).success
    with duckdb.connect(str(path), read_only=True) as connection:
        for name, rows in (("eval_records", 24), ("cliffs", 2), ("bins", 6)):
            found = connection.execute(f"SELECT count(*) FROM contextcliff.{name}").fetchone()
            assert found == (rows,)
        kinds = (
            "SELECT DISTINCT typeof(error), typeof(finished_at), typeof(score), typeof(attempts)"
        )
        types = connection.execute(f"{kinds} FROM contextcliff.eval_records").fetchall()
    # `error` is null everywhere.
    assert types == [("VARCHAR", "TIMESTAMP WITH TIME ZONE", "DOUBLE", "BIGINT")]
