"""contextcliff.duckdb: the same numbers by SQL."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow.parquet as pq
import pytest
from dagster_duckdb import DuckDBResource

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS
from contextcliff_dagster.defs.database import database_asset
from contextcliff_dagster.defs.resources import DUCKDB, STORE, StoreResource
from contextcliff_dagster.store import Store, write_table
from contextcliff_dagster.studies import Study


def build(study: Study, store: Store) -> None:
    dg.materialize(
        [database_asset([study])],
        resources={
            STORE: StoreResource(root=str(store.root)),
            DUCKDB: DuckDBResource(database=str(store.duckdb_path)),
        },
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def test_an_empty_store_has_empty_tables(study: Study, store: Store) -> None:
    build(study, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        for name in ("predictions", "eval_records", "cliffs", "bins", "partitions"):
            assert database.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)


def test_sql_sees_records_and_verdicts(measured: Study, store: Store) -> None:
    build(measured, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        rows = database.execute(
            "SELECT model, count(*), avg(score) FROM eval_records GROUP BY model ORDER BY model"
        ).fetchall()
        assert [(model, n) for model, n, _ in rows] == [
            ("reference-long", 12),
            ("reference-short", 12),
        ]
        mean = database.execute(
            "SELECT sum(mean * n) / sum(n) FROM bins WHERE model = 'reference-short'"
        ).fetchone()
        assert mean is not None
        assert mean[0] == pytest.approx(rows[1][2])
        assert database.execute("SELECT count(*) FROM cliffs").fetchone() == (2,)
    # Rebuilt whole: a second time gives the same, not twice as much.
    build(measured, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        assert database.execute("SELECT count(*) FROM cliffs").fetchone() == (2,)


def test_sql_sees_files_from_before_a_column_was_there(measured: Study, store: Store) -> None:
    later = [column.name for column in PREDICTIONS.columns if column.later]
    files = sorted(store.root.glob("tiny/predictions/**/*.parquet"))
    for old in files[:-1]:
        pq.write_table(pq.ParquetFile(old).read().drop_columns(later), old)
    for how_many in (files, files[:-1]):
        for gone in set(files) - set(how_many):
            gone.unlink()
        build(measured, store)
        with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
            asked = f"SELECT count(*), count({later[0]}) FROM predictions"
            found = database.execute(asked).fetchone()
            assert found == (4 * len(how_many), 4 if files[-1] in how_many else 0)


def test_sql_sees_what_stands_behind_each_key(measured: Study, store: Store) -> None:
    # A call of b01 that has no answer.
    (file,) = store.root.glob("tiny/eval_records/*/model=reference-short/bin=b01/*.parquet")
    rows = pq.ParquetFile(file).read().to_pylist()
    rows[0] |= {"score": None, "failure": "transport_error"}
    write_table(file, rows, EVAL_RECORDS)
    build(measured, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        found = database.execute(
            "SELECT model, key, experiment, examples, calls, done, failed, from_tokens, to_tokens,"
            " shortest_tokens, longest_tokens FROM partitions ORDER BY model, key"
        ).fetchall()
    assert [row[1] for row in found] == ["b00", "b01", "b02"] * 2
    assert {row[:7] for row in found if row[6]} == {
        ("reference-short", "b01", "length_profile", 4, 4, 3, 1)
    }
    assert {row[2:7] for row in found if not row[6]} == {("length_profile", 4, 4, 4, 0)}
    for *_, first, last, shortest, longest in found:
        assert first <= shortest <= longest <= last
    edges = [row[7:9] for row in found[:3]]
    assert [low for low, _ in edges[1:]] == [high + 1 for _, high in edges[:-1]]


@pytest.mark.parametrize("name", ["a?b", "a[1]*b", "a%41#b", "it's é"])
def test_the_path_of_a_store_is_no_pattern(
    measured: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    odd = Store(Path(shutil.copytree(store.root, tmp_path / name, symlinks=True)))
    odd.duckdb_path.unlink(missing_ok=True)
    build(measured, odd)
    with duckdb.connect(str(odd.duckdb_path), read_only=True) as database:
        assert database.execute("SELECT count(*) FROM predictions").fetchone() == (24,)
    assert odd.duckdb_path.stat().st_mode & 0o077 == 0


def test_columns_of_a_file_are_never_sql(measured: Study, store: Store) -> None:
    evil = 'x" FROM eval_records; DROP VIEW predictions; --'
    (first, *_) = sorted(store.root.glob("tiny/predictions/**/*.parquet"))
    table = pq.ParquetFile(first).read()
    pq.write_table(table.append_column(evil, table.column("model")), first)
    build(measured, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        shown = database.execute("SELECT * FROM predictions")
        assert [column[0] for column in shown.description] == list(PREDICTIONS.column_names)
        assert len(shown.fetchall()) == 24


def test_every_table_and_column_is_described(measured: Study, store: Store) -> None:
    build(measured, store)
    with duckdb.connect(str(store.duckdb_path), read_only=True) as database:
        of = "SELECT table_name, comment FROM duckdb_tables() UNION ALL SELECT view_name, comment"
        tables = dict(database.execute(f"{of} FROM duckdb_views() WHERE NOT internal").fetchall())
        columns = database.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
    assert {"predictions", "eval_records", "control_records", "partitions"} < tables.keys()
    assert {"cliffs", "bins", "bin_ranges"} < tables.keys() == {table for table, *_ in columns}
    assert tables["eval_records"] == EVAL_RECORDS.description
    texts = {(table, column): text for table, column, text in columns}
    assert not [where for where, text in (texts | tables).items() if not text]
    assert texts["eval_records", "ttft_ms"] == "Time to the first token [ms]"
    assert texts["cliffs", "safe_cap_tokens"].startswith("certified cap")
    assert texts["bins", "sd"].startswith("standard deviation")
