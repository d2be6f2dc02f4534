"""Records of unchanged partitions cost nothing: they come from one file, and no other is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from contextcliff_dagster.archive.rename import prune_store
from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, conform
from contextcliff_dagster.experiments.common import records
from contextcliff_dagster.experiments.common.preparation import as_drawn
from contextcliff_dagster.experiments.common.records import RecordsAtOnce, read_record_table
from contextcliff_dagster.experiments.common.study_run import StudyRun, table_files
from contextcliff_dagster.experiments.length_profile import scored_records
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study, load_studies
from contextcliff_dagster_tests.support.measured_stores import copy_of_few


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(records, "FEWEST_FILES", 2)
    return Store(copy_of_few(tmp_path_factory))


@pytest.fixture
def study(store: Store) -> Study:
    return as_drawn(load_studies()["quick"], store)


@pytest.fixture
def campaign(store: Store, study: Study) -> str:
    with StudyRun.open(study, store, None) as run:
        scored_records.score_campaign(run, LENGTH_PROFILE)
        return run.campaign


def score(store: Store, study: Study) -> pa.Table:
    with StudyRun.open(study, store, None) as run:
        return scored_records.score_campaign(run, LENGTH_PROFILE)


def files(store: Store, study: Study, campaign: str) -> list[Path]:
    return table_files(store, EVAL_RECORDS, study.name, campaign)


def opened(store: Store, study: Study, campaign: str) -> int:
    """How many files are opened to read all records."""
    at_once = RecordsAtOnce(store, EVAL_RECORDS, study.name, campaign)
    for path in files(store, study, campaign):
        assert at_once.read(path).equals(read_table(path, EVAL_RECORDS))
    return at_once.read_alone


def test_no_file_of_an_unchanged_partition_is_opened(
    store: Store, study: Study, campaign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score(store, study)
    assert len(files(store, study, campaign)) > 2
    for room in (records, scored_records):
        monkeypatch.setattr(room, "read_table", lambda *_, **__: pytest.fail("a file was opened"))
    monkeypatch.setattr(records, "_noted", lambda _: pytest.fail("a file was opened"))
    assert score(store, study).equals(expected)
    assert read_record_table(EVAL_RECORDS, study, store, campaign).equals(expected)


def test_of_a_changed_partition_one_file_is_opened(
    store: Store, study: Study, campaign: str
) -> None:
    assert opened(store, study, campaign) == 0
    path = files(store, study, campaign)[1]
    rows = read_table(path, EVAL_RECORDS).to_pylist()
    write_table(path, conform([{**row, "score": 0.25} for row in rows], EVAL_RECORDS), EVAL_RECORDS)
    assert opened(store, study, campaign) == 1


def test_an_answer_that_changed_in_place_is_scored(
    store: Store, study: Study, campaign: str
) -> None:
    first = score(store, study)
    path = min(table_files(store, PREDICTIONS, study.name, campaign))
    rows = read_table(path, PREDICTIONS).to_pylist()
    write_table(path, [{**row, "raw_output": "another answer"} for row in rows], PREDICTIONS)
    again = score(store, study)
    assert again["raw_output"].to_pylist() != first["raw_output"].to_pylist()
    assert opened(store, study, campaign) == 0
    assert score(store, study).equals(again)


@pytest.mark.parametrize("damage", [b"", b"PAR1 and no more", None])
def test_a_damaged_copy_is_made_again(
    store: Store, study: Study, campaign: str, damage: bytes | None
) -> None:
    expected = score(store, study)
    copy = store.campaign_copy(EVAL_RECORDS.name, study.name, campaign)
    if damage is None:
        copy.unlink()
    else:
        copy.write_bytes(damage)
    assert opened(store, study, campaign) == len(files(store, study, campaign))
    assert score(store, study).equals(expected)
    assert opened(store, study, campaign) == 0


def test_a_removed_partition_leaves_the_copy(store: Store, study: Study, campaign: str) -> None:
    path = min(table_files(store, PREDICTIONS, study.name, campaign))
    path.unlink()
    left = score(store, study)
    assert read_record_table(EVAL_RECORDS, study, store, campaign).equals(left)
    assert opened(store, study, campaign) == 0


def test_the_folder_of_a_campaign_holds_every_record_once(
    store: Store, study: Study, campaign: str
) -> None:
    import duckdb
    import pyarrow.dataset as ds

    expected = score(store, study).num_rows
    folder = store.campaign_dir(EVAL_RECORDS.name, study.name, campaign)
    assert ds.dataset(folder, format="parquet").count_rows() == expected
    with duckdb.connect() as database:
        every = database.execute(f"SELECT count(*) FROM '{folder}/**/*.parquet'").fetchall()
    assert every == [(expected,)]


@pytest.mark.parametrize("texts", [True, False])
def test_pruning_takes_the_copy_along(
    store: Store, study: Study, campaign: str, texts: bool
) -> None:
    copy = store.campaign_copy(EVAL_RECORDS.name, study.name, campaign)
    assert copy.exists()
    with Ledger.open(store.ledger) as ledger:
        prune_store(
            store, ledger, study.name, campaign, tables=(PREDICTIONS, EVAL_RECORDS), texts=texts
        )
    assert not copy.exists()


def test_a_file_of_another_time_is_opened(store: Store, study: Study, campaign: str) -> None:
    path = files(store, study, campaign)[0]
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert opened(store, study, campaign) == 1
