"""A file of examples is read whatever its format."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.readers.rows import JsonStream
from contextcliff_dagster.corpora.registry import open_corpus

ROWS = [
    {
        "id": "a",
        "context": "Ünïcode – 漢字 🙂\r\nsecond line",
        "question": "Who?",
        "answers": ["x", "y"],
    },
    {"id": "b", "context": 'He said "no",\tthen left.', "question": "What?", "answers": ["no"]},
    {
        "id": "c",
        "context": "Ünïcode – 漢字 🙂\r\nsecond line",
        "question": "Why?",
        "answers": ["z"],
    },
]


def write(path: Path, rows: Sequence[dict[str, Any]], line_end: str = "\n") -> Path:
    """The rows in the format of the path's ending."""
    kind = path.suffix
    if kind == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) + line_end for row in rows]
        path.write_bytes("".join(lines).encode())
    elif kind == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=2), encoding="utf-8")
    elif kind == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(
                file, delimiter="," if kind == ".csv" else "\t", lineterminator=line_end
            )
            writer.writerow(rows[0])
            for row in rows:
                writer.writerow(
                    json.dumps(v, ensure_ascii=False) if isinstance(v, list) else v
                    for v in row.values()
                )
    return path


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    entries = open_corpus("file", {"path": str(path), **options}).entries()
    return [
        {
            "id": e.example.example_id,
            "context": e.document.text,
            "question": e.example.question,
            "answers": list(e.example.answers),
        }
        for e in entries
    ]


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
def test_every_format_gives_the_same_examples(tmp_path: Path, ending: str) -> None:
    assert read(write(tmp_path / f"qa{ending}", ROWS)) == ROWS


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv"])
def test_windows_files_read_the_same(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"qa{ending}", ROWS, line_end="\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read(path) == ROWS


def test_the_blueprints_data_json_reads_with_a_byte_order_mark(tmp_path: Path) -> None:
    rows = [{"Context": "c", "question": "q", "answer": "a", "source": "wiki"}]
    path = tmp_path / "data.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(rows).encode())
    (entry,) = FileCorpus({"path": str(path), "columns": {"context": "Context"}}).entries()
    assert entry.document.text == "c"
    assert entry.example.metadata == {"source": "wiki"}
    assert entry.example.task == "question_answering"


def test_identical_texts_under_different_ids_are_one_document(tmp_path: Path) -> None:
    corpus = FileCorpus({"path": write(tmp_path / "qa.jsonl", ROWS)})
    assert len(list(corpus.documents())) == 2
    assert len(list(corpus.examples())) == 3


def test_answers_come_as_text_number_list_or_squad_object(tmp_path: Path) -> None:
    given_and_read: list[tuple[Any, list[str]]] = [
        ("Paris", ["Paris"]),
        (7, ["7"]),
        (2.5, ["2.5"]),
        (True, ["true"]),
        (["a", " ", "b", "a"], ["a", "b"]),
        ({"text": ["x"], "answer_start": [3]}, ["x"]),
        ([{"text": "y"}, {"text": "z"}], ["y", "z"]),
    ]
    rows = [
        {"context": "c", "question": f"{n}", "answers": a}
        for n, (a, _) in enumerate(given_and_read)
    ]
    path = write(tmp_path / "qa.jsonl", rows)
    assert [row["answers"] for row in read(path)] == [wanted for _, wanted in given_and_read]


def test_what_else_is_known_is_carried_along(tmp_path: Path) -> None:
    row = {
        "text": "t",
        "question": "q",
        "answer": "a",
        "task": "lookup",
        "level": "2",
        "evidence_position": 0.25,
        "domain": "law",
        "topic": "tax",
        "huge": "x" * 5_000,
        "gone": None,
    }
    (entry,) = FileCorpus({"path": write(tmp_path / "qa.jsonl", [row])}).entries()
    assert entry.example.task == "lookup"
    assert entry.example.metadata == {
        "level": 2,
        "evidence_position": 0.25,
        "domain": "law",
        "topic": "tax",
    }


def test_lines_of_ten_megabytes_are_read(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(n),
            "context": ("né" * 40 + "\n") * 86_000 + str(n),
            "question": "q",
            "answers": ["a"],
        }
        for n in range(2)
    ]
    for ending in (".jsonl", ".json", ".csv"):
        assert read(write(tmp_path / f"long{ending}", rows)) == rows


@given(
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text()
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=6,
    ),
    st.sampled_from([None, 0, 2]),
    st.integers(1, 40),
)
def test_the_json_stream_reads_what_json_reads_at_any_buffer_size(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, ahead: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "data.json"
    path.write_text(json.dumps(values, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contextcliff_dagster.corpora.readers.rows._READ_AHEAD", ahead)
        patch.setattr("contextcliff_dagster.corpora.readers.rows._CHUNK", ahead + 2)
        assert [value for _, value in JsonStream(path).values()] == values


def test_a_number_may_go_on_in_the_next_chunk(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    values = [1.5, 1e-9, -12.25, 100]
    path.write_text("[1.5, 1e-9, -12.25, 100]", encoding="utf-8")
    for size in range(3, 24):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("contextcliff_dagster.corpora.readers.rows._READ_AHEAD", 1)
            patch.setattr("contextcliff_dagster.corpora.readers.rows._CHUNK", size)
            assert [value for _, value in JsonStream(path).values()] == values


def test_the_fingerprint_follows_content_and_options_not_the_path(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", ROWS)
    two = write(tmp_path / "two.jsonl", ROWS)
    other = write(tmp_path / "other.jsonl", ROWS[:2])
    assert FileCorpus({"path": one}).fingerprint() == FileCorpus({"path": two}).fingerprint()
    assert FileCorpus({"path": one}).fingerprint() != FileCorpus({"path": other}).fingerprint()
    assert (
        FileCorpus({"path": one}).fingerprint()
        != FileCorpus({"path": one, "task": "lookup"}).fingerprint()
    )
