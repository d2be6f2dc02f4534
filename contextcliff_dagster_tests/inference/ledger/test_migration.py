"""Old ledgers are brought up to date whole or not at all; newer ones are left alone.

`ledger_v1.sql` and `ledger_v5.sql` were dumped from ledgers that those versions' own code made:
four answers, in the fifth version also a failed request, an orphaned one and a pruned answer.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger import schema
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION, steps, table_names
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.ledger.test_ledger import source
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.records.calls import LedgerSample, plan_of, reference_entry

SAMPLE = LedgerSample(2, 2, max_tokens=120)
VERSIONS = [1, 5]
Rows = dict[str, list[tuple[Any, ...]]]


class Old(NamedTuple):
    where: Path | DatabaseUrl
    version: int


@pytest.fixture(params=VERSIONS)
def old(ledger_at: Path | DatabaseUrl, tmp_path: Path, request: pytest.FixtureRequest) -> Old:
    """A ledger of an old version with four answers of study ``s``."""
    version: int = request.param
    path = ledger_at if isinstance(ledger_at, Path) else tmp_path / "old.db"
    with sqlite3.connect(path) as db:
        dump = Path(__file__).with_name(f"ledger_v{version}.sql")
        db.executescript(dump.read_text(encoding="utf-8"))
        db.execute(f"PRAGMA user_version={version}")
    db.execute("PRAGMA journal_mode=WAL")
    if isinstance(ledger_at, DatabaseUrl):
        _copy_into_postgres(db, ledger_at, version)
    db.close()
    return Old(ledger_at, version)


def _copy_into_postgres(db: sqlite3.Connection, url: DatabaseUrl, version: int) -> None:
    from contextcliff_dagster.inference.ledger.postgres import PostgresConnection, _InPostgres

    to = PostgresConnection(url)
    for statement in [
        "CREATE SCHEMA contextcliff",
        "CREATE TABLE ledger_version (version BIGINT NOT NULL)",
        f"INSERT INTO ledger_version VALUES ({version})",
        *steps(0, version),
    ]:
        _InPostgres(to).execute(statement)
    for table in table_names():
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            continue
        for row in db.execute(f"SELECT * FROM {table}"):
            to.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    to.flush()
    to.close()


def contents(where: Path | DatabaseUrl, version: int) -> Rows:
    """Every row of every table of that version, read without opening a ledger."""
    if isinstance(where, Path):
        db: Any = sqlite3.connect(f"{where.as_uri()}?mode=ro", uri=True)
        found = db.execute("PRAGMA user_version").fetchone()[0]
    else:
        from contextcliff_dagster.inference.ledger.postgres import PostgresConnection

        db = PostgresConnection(where)
        found = db.execute("SELECT version FROM ledger_version").fetchone()[0]
    assert found == version
    there = [
        name for name in table_names() if f"CREATE TABLE {name} " in "".join(steps(0, version))
    ]
    tables = {t: sorted(db.execute(f"SELECT * FROM {t}").fetchall(), key=repr) for t in there}
    db.close()
    return tables


def measured(where: Path | DatabaseUrl) -> tuple[int, int]:
    """Calls that were cached and sent when the study of the old ledger is measured again."""
    with Ledger.open(where) as ledger:
        summary = measure(plan_of(SAMPLE, 2), reference_entry(), ledger)
    return summary.cached, summary.sent


def test_an_old_ledger_is_brought_up_to_date_and_pays_nothing_again(old: Old) -> None:
    before = contents(old.where, old.version)
    with Ledger.open(old.where) as ledger:
        assert ledger.stats()["answers"] == {1: 4, 5: 5}[old.version]
        verified = verify(ledger)
        assert (verified.prompts, verified.faults) == ({1: 4, 5: 6}[old.version], ())
        unmarked = ledger.read("SELECT call_key FROM results WHERE checksum IS NULL")
        assert len(unmarked) == {1: 0, 5: 1}[old.version], "pruned answers alone have none"
    after = contents(old.where, LEDGER_VERSION)
    for table, rows in before.items():
        width = len(rows[0]) if rows else 0
        assert [row[:width] for row in after[table]] == rows, table
    assert measured(old.where) == (4, 0)


@pytest.mark.parametrize("done", ["half", "all"])
def test_a_migration_that_is_killed_leaves_the_old_ledger(old: Old, done: str) -> None:
    before = contents(old.where, old.version)
    code = (
        "import os; from contextcliff_dagster_tests.inference.ledger.test_ledger import *\n"
        "from contextcliff_dagster.inference.ledger import postgres, schema\n"
        "whole = schema.bring_up_to_date\n"
        "def killed(db, version):\n"
        f"    if {done!r} == 'all': whole(db, version)\n"
        "    else: [db.execute(statement) for statement in schema.steps(version)[:2]]\n"
        "    getattr(getattr(db, '_db', None), 'flush', int)()\n"
        "    os.kill(os.getpid(), 9)\n"
        "schema.bring_up_to_date = postgres.bring_up_to_date = killed\n"
        f"Ledger.open({source(old.where)})\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert contents(old.where, old.version) == before
    assert measured(old.where) == (4, 0)


@pytest.mark.parametrize("old", [5], indirect=True)
def test_several_processes_may_migrate_at_once(old: Old) -> None:
    code = (
        "from contextcliff_dagster_tests.inference.ledger.test_ledger import *;"
        f"Ledger.open({source(old.where)}).close()"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert measured(old.where) == (4, 0)


def test_a_newer_ledger_is_refused_and_its_file_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Ledger.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={LEDGER_VERSION + 1}")
    db.close()
    bytes_before, changed = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(StoreError, match=r"newer version .* unchanged; upgrade"):
        Ledger.open(path)
    assert path.read_bytes() == bytes_before
    assert path.stat().st_mtime_ns == changed


def test_a_new_ledger_is_made_by_the_steps_that_migrate_an_old_one(tmp_path: Path) -> None:
    """So the two cannot differ; and no released step may be edited."""
    import hashlib

    first = "".join(schema._STEPS[1].split())
    assert hashlib.sha256(first.encode()).hexdigest()[:16] == "96954771b751eff6"
    for number in schema._STEPS:
        assert steps(number - 1, number), f"step {number} is empty"


@pytest.mark.postgres
def test_the_tables_of_both_databases_have_the_same_columns(postgres: PostgresServer) -> None:
    Ledger.open(DatabaseUrl(postgres.url)).close()
    for table in table_names():
        rows = postgres.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema ="
            f" 'contextcliff' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        assert [row[0] for row in rows] == list(schema.columns(table))
