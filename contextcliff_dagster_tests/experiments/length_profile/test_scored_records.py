"""Records are made again when something of them has changed, and left alone when nothing has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS
from contextcliff_dagster.experiments.common.preparation import as_drawn
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile import scored_records
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study, load_studies
from contextcliff_dagster_tests.support.measured_stores import copy_of_few

Score = Callable[..., pa.Table]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(copy_of_few(tmp_path_factory))


@pytest.fixture
def study(store: Store) -> Study:
    return as_drawn(load_studies()["quick"], store)


@pytest.fixture
def score(store: Store, study: Study) -> Score:
    def scored(**changes: object) -> pa.Table:
        of = study.model_copy(update={"scoring": study.scoring.model_copy(update=changes)})
        with StudyRun.open(of, store, None) as run:
            return scored_records.score_campaign(run, LENGTH_PROFILE)

    return scored


def files(store: Store, table: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.root.rglob(f"{table}.parquet")}


def inodes(store: Store) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in files(store, "eval_records")}


def test_unchanged_records_are_neither_made_nor_written_again(
    store: Store, score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = score(), inodes(store)
    monkeypatch.setattr(
        "contextcliff_dagster.scoring.evaluate.score_rows", lambda *_: pytest.fail("scored again")
    )
    assert score().equals(first)
    assert inodes(store) == before


def test_without_marks_all_records_are_made_and_are_the_same(store: Store, score: Score) -> None:
    first = score()
    for path in files(store, "eval_records"):
        write_table(path, read_table(path, EVAL_RECORDS), EVAL_RECORDS)
    before = inodes(store)
    assert score().equals(first)
    assert all(inodes(store)[path] != inode for path, inode in before.items())


def test_a_changed_answer_is_scored_and_others_stay(store: Store, score: Score) -> None:
    first, before = score(), inodes(store)
    changed = min(files(store, "predictions"))
    rows = read_table(changed, PREDICTIONS).to_pylist()
    write_table(changed, [{**row, "raw_output": "another answer"} for row in rows], PREDICTIONS)
    again = score()
    assert again["score"].to_pylist() != first["score"].to_pylist()
    written = {path for path, inode in inodes(store).items() if before[path] != inode}
    assert [path.parent for path in written] == [
        Path(str(changed.parent).replace("predictions", "eval_records"))
    ]


def test_another_rule_scores_everything_again(store: Store, score: Score) -> None:
    score()
    before = inodes(store)
    score(primary="f1")
    assert not set(before.items()) & set(inodes(store).items())


def test_records_that_another_program_wrote_are_made_again(store: Store, score: Score) -> None:
    first = score()
    path = min(files(store, "eval_records"))
    edited = pd.read_parquet(path).assign(score=0.5)
    edited.to_parquet(path)
    assert score().equals(first)


def test_a_removed_file_of_predictions_takes_its_records_along(store: Store, score: Score) -> None:
    score()
    path = min(files(store, "predictions"))
    path.unlink()
    records = Path(str(path).replace("predictions", "eval_records"))
    assert records.exists()
    score()
    assert not records.exists()


def test_the_mark_is_no_column(store: Store, score: Score) -> None:
    score()
    schema = pq.read_schema(min(files(store, "eval_records")))
    assert schema.names == list(EVAL_RECORDS.column_names)
