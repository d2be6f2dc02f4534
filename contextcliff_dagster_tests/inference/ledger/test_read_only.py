"""A ledger where nothing can be written is read; a backup is whole, while others write."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.ledger.test_ledger import CALLS, begin
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.read_only import read_only
from contextcliff_dagster_tests.support.records.measured import run


@pytest.mark.parametrize("name", ["store", "a?b", "a#b", "a%41b", "a b é", "a[1]*b", "it's"])
def test_a_store_of_any_name_is_read_where_nothing_can_be_written(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    with Ledger.open(folder / "state.db") as ledger:
        run(ledger, n=2)
        whole = ledger.stats()
    with read_only(folder), Ledger.open_to_read(folder / "state.db") as ledger:
        assert {**ledger.stats(), "bytes": 0, "table_bytes": 0} == {
            **whole,
            "bytes": 0,
            "table_bytes": 0,
        }
        verified = verify(ledger)
        assert (verified.prompts, verified.faults) == (6, ())
        with pytest.raises(StoreError, match="is read-only here"):
            ledger.write(lambda db: None)
        ledger.backend.backup(tmp_path / "copy.db")
    assert {path.name for path in tmp_path.iterdir()} == {name, "copy.db"}
    with Ledger.open(tmp_path / "copy.db") as ledger:
        assert ledger.stats()["answers"] == 6


def test_what_a_crash_left_in_the_log_is_read_as_well(tmp_path: Path) -> None:
    folder, crashed = tmp_path / "store", tmp_path / "crashed"
    with Ledger.open(folder / "state.db") as ledger:
        run(ledger, n=2)
        # As a machine that lost its power leaves it: the log is not yet in the file.
        crashed.mkdir()
        for file in ("state.db", "state.db-wal"):
            shutil.copyfile(folder / file, crashed / file)
    assert (crashed / "state.db-wal").stat().st_size > 0
    with read_only(crashed), Ledger.open_to_read(crashed / "state.db") as ledger:
        assert ledger.stats()["answers"] == 6
        assert verify(ledger).faults == ()


def test_a_live_ledger_in_a_read_only_folder_shows_whose_calls_are_at_work(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Ledger.open(folder / "state.db") as writing:
        begin(writing, CALLS[0])
        with read_only(folder), Ledger.open_to_read(folder / "state.db") as ledger:
            assert ledger.stats()["orphans"] == 0
    with read_only(folder), Ledger.open_to_read(folder / "state.db") as ledger:
        assert ledger.stats()["orphans"] == 1


def test_an_older_ledger_that_cannot_be_brought_up_to_date_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store" / "state.db"
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=3")
    with (
        read_only(path.parent),
        pytest.raises(StoreError, match=r"older version \(3\).*copy it to another folder"),
    ):
        Ledger.open_to_read(path)


def test_a_backup_is_whole_while_another_process_writes(tmp_path: Path) -> None:
    path, stop, done = tmp_path / "state.db", threading.Event(), threading.Event()
    with Ledger.open(path) as ledger, Ledger.open(path) as other:

        def write() -> None:
            number = 0
            while not stop.is_set():
                name = f"c{number}"
                other.write(
                    lambda db, name=name: [
                        db.execute("INSERT INTO campaigns VALUES (?, ?, 'now')", (study, name))
                        for study in ("one", "two")
                    ]
                )
                number += 1
                if number == 20:
                    done.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert done.wait(120)
        for _ in range(5):
            ledger.backend.backup(tmp_path / "copy.db")
            with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
                counts = db.execute("SELECT count(*) FROM campaigns GROUP BY study").fetchall()
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert counts[0] == counts[1]
            assert counts[0][0] >= 20
        stop.set()
        writer.join()
        with pytest.raises(StoreError, match="is the call ledger itself"):
            ledger.backend.backup(path)


@pytest.mark.postgres
def test_a_ledger_in_postgresql_names_its_own_tool(postgres: PostgresServer) -> None:
    with (
        Ledger.open(DatabaseUrl(postgres.url)) as ledger,
        pytest.raises(StoreError, match=r"pg_dump --schema contextcliff --file x\.dump"),
    ):
        ledger.backend.backup(Path("x.dump"))
