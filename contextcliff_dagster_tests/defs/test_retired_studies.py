"""A retired study is shown nowhere, keeps its results, and can be brought back."""

from __future__ import annotations

import json

import duckdb
import pytest

from contextcliff_dagster.contracts import EVAL_RECORDS, StudyError
from contextcliff_dagster.experiments.sql_tables import result_rows, view_sql
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.files import bring_back, retire, retired_studies
from contextcliff_dagster_tests.support.terminal import call

pytestmark = pytest.mark.usefixtures("unrecorded")


def rows_in_database(store: Store) -> tuple[int, int]:
    """Rows of the view of records, and of the table of verdicts."""
    with duckdb.connect() as connection:
        connection.execute(view_sql(EVAL_RECORDS, store.root))
        (count,) = connection.execute("SELECT count(*) FROM eval_records").fetchone() or (0,)
    cliffs, *_ = result_rows(store.root).values()
    return count, len(cliffs)


def test_the_database_follows(measured: Study, store: Store) -> None:
    before = rows_in_database(store)
    assert min(before) > 0
    files = {path for path in store.root.rglob("*") if path.is_file()}
    retire(store, measured.name)
    assert retired_studies(store) == [measured.name]
    assert rows_in_database(store) == (0, 0)
    assert files <= {path for path in store.root.rglob("*") if path.is_file()}
    bring_back(store, measured.name)
    assert rows_in_database(store) == before


def test_the_note_is_never_sql(measured: Study, store: Store) -> None:
    retire(store, measured.name)
    note = store.study_dir(measured.name) / "retired.json"
    note.write_text(json.dumps({"study": "x') OR true; DROP TABLE a; --"}))
    assert rows_in_database(store)[0] > 0
    note.write_text("[]")
    assert retired_studies(store) == []


def test_the_command_line_lists_it_apart(store: Store) -> None:
    def said(*words: str) -> str:
        ended = call("studies", *words)
        assert ended.code == 0
        return ended.out

    store.study_dir("quick").mkdir()
    assert "Study quick is retired." in said("retire", "quick")
    assert "Retired: quick" in said()
    assert "quick" not in {one["name"] for one in json.loads(said("--json"))}
    assert json.loads(said("retire", "quick", "--undo", "--json")) == {
        "study": "quick",
        "retired": False,
    }
    assert "Retired" not in said()


def test_what_cannot_be_retired_is_named(store: Store) -> None:
    with pytest.raises(StudyError, match="no results of study 'nope'"):
        retire(store, "nope")
    with pytest.raises(StudyError, match="is not retired"):
        bring_back(store, "reference")
