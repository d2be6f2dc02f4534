"""The answers behind a campaign's numbers: joined from records, predictions and the sample."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from contextcliff_dagster.archive.rename import prune_store
from contextcliff_dagster.contracts import ANSWERS, EVAL_RECORDS, PREDICTIONS, StoreError
from contextcliff_dagster.experiments.common.answers import (
    answered_cells,
    iter_answers,
    read_answers,
)
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import experiment_tables
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study

MODELS = ["reference-short", "reference-long"]


@pytest.fixture
def opened(measured: Study, store: Store) -> Iterator[StudyRun]:
    with StudyRun.open(measured, store) as run:
        yield run


def test_each_answer_is_a_row_with_its_question_by_bin_then_length(opened: StudyRun) -> None:
    table = read_answers(opened)
    assert table.schema.equals(ANSWERS.arrow_schema())
    rows = table.to_pylist()
    assert len(rows) == 24
    keys = [(r["bin"], r["length_tokens"], r["example_id"], MODELS.index(r["model"])) for r in rows]
    assert keys == sorted(keys)
    for row in rows:
        file = opened.store.table_file(
            "eval_records", "tiny", opened.campaign, row["model"], row["bin"]
        )
        (record,) = [
            r
            for r in read_table(file, EVAL_RECORDS).to_pylist()
            if r["example_id"] == row["example_id"]
        ]
        (planned,) = [
            p
            for p in opened.manifest.planned(row["bin"], 9)
            if p.example.example_id == row["example_id"]
        ]
        assert row["question"] == planned.example.question
        assert tuple(row["accepted"]) == planned.example.answers
        assert row["answer"] == record["raw_output"]
        assert (row["control"], row["error"]) == (None, None)
        for name in set(row) - {"document", "question", "accepted", "answer", "control"}:
            assert row[name] == record[name]


def test_models_and_bins_choose_and_unknown_ones_choose_nothing(opened: StudyRun) -> None:
    assert answered_cells(opened) == {model: ["b00", "b01", "b02"] for model in MODELS}
    few = read_answers(opened, models=["reference-long", "none"], bins=["b02"])
    assert few.num_rows == 4
    assert few.equals(
        next(t for t in iter_answers(opened, bins=["b02"])).filter(
            [model == "reference-long" for _ in range(4) for model in MODELS]
        )
    )
    assert read_answers(opened, models=["none"]).schema.equals(ANSWERS.arrow_schema())


def test_what_is_not_scored_yet_is_there_without_a_score(opened: StudyRun) -> None:
    before = read_answers(opened).to_pylist()
    place = ("tiny", opened.campaign, "reference-short")
    opened.store.table_file("eval_records", *place, "b01").unlink()
    half = opened.store.table_file("eval_records", *place, "b02")
    write_table(half, read_table(half, EVAL_RECORDS).slice(2), EVAL_RECORDS)
    rows = read_answers(opened).to_pylist()
    judged = ("parsed_answer", "score", "em", "f1", "contained", "failure")
    unscored = [row for row in rows if row["score"] is None]
    assert len(unscored) == 6
    for old, new in zip(before, rows, strict=True):
        same = new if new["score"] is not None else old | dict.fromkeys(judged)
        assert new == same == (old if new["score"] is not None else same)


def test_a_call_without_an_answer_says_why(opened: StudyRun) -> None:
    file = opened.store.table_file("predictions", "tiny", opened.campaign, MODELS[0], "b00")
    rows = read_table(file, PREDICTIONS).to_pylist()
    rows[0] |= {"raw_output": None, "no_answer": "transport_error", "error": "timeout: no reply"}
    write_table(file, rows, PREDICTIONS)
    opened.store.table_file("eval_records", "tiny", opened.campaign, MODELS[0], "b00").unlink()
    (lost,) = [
        row for row in read_answers(opened).to_pylist() if row["failure"] == "transport_error"
    ]
    assert (lost["answer"], lost["score"], lost["error"]) == (None, None, "timeout: no reply")


def test_pruned_texts_leave_scores_and_lengths(opened: StudyRun) -> None:
    before = read_answers(opened)
    opened.store.kv_reads_dir.mkdir()
    (opened.store.kv_reads_dir / "a.safetensors").touch()
    prune_store(opened.store, opened.ledger, "tiny", tables=experiment_tables(), texts=True)
    texts = ["question", "accepted", "answer", "parsed_answer"]
    after = read_answers(opened)
    assert not opened.store.kv_reads_dir.exists()
    assert after.num_rows == 24
    assert all(after[name].null_count == 24 for name in texts)
    assert after.drop_columns(texts).equals(before.drop_columns(texts))


def test_a_damaged_file_is_a_sentence(opened: StudyRun) -> None:
    opened.store.table_file("eval_records", "tiny", opened.campaign, MODELS[0], "b00").write_bytes(
        b"PAR1"
    )
    with pytest.raises(StoreError, match="cannot be read as Parquet"):
        read_answers(opened)


def test_nothing_measured_is_an_empty_table(study: Study, store: Store) -> None:
    with StudyRun.open(study, store) as run:
        assert read_answers(run).num_rows == 0
        assert answered_cells(run) == {}


def test_replicates_of_a_question_are_next_to_each_other(opened: StudyRun) -> None:
    place = ("tiny", opened.campaign, "reference-short", "b00")
    for table in (EVAL_RECORDS, PREDICTIONS):
        file = opened.store.table_file(table.name, *place)
        rows = read_table(file, table).to_pylist()
        twice = [
            r | {"replicate": n, "call_key": f"{r['call_key']}-{n}"} for n in (0, 1) for r in rows
        ]
        random.Random(3).shuffle(twice)
        write_table(file, twice, table)
    rows = read_answers(opened, models=["reference-short"], bins=["b00"]).to_pylist()
    assert [row["replicate"] for row in rows] == [0, 1] * 4


def test_memory_is_that_of_one_cell(opened: StudyRun) -> None:
    """Ten megabytes of answers in each of three cells: the last holds no more than the first."""
    for cell in ("b00", "b01", "b02"):
        for table in (EVAL_RECORDS, PREDICTIONS):
            file = opened.store.table_file(table.name, "tiny", opened.campaign, MODELS[0], cell)
            rows = read_table(file, table).to_pylist()
            write_table(file, [r | {"raw_output": "x" * 2_500_000} for r in rows], table)
    before = pa.total_allocated_bytes()
    cells = [
        (cell.nbytes, pa.total_allocated_bytes() - before)
        for cell in iter_answers(opened, models=[MODELS[0]])
    ]
    assert [size > 10_000_000 for size, _ in cells] == [True] * 3
    assert max(held for _, held in cells) < 1.3 * cells[0][1]
