"""A file of examples is read whatever its format, and refused in a sentence when it is no good."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.json_stream import JsonStream
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


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        read(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(path) in sentence
    return sentence


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
    stream = JsonStream(path)
    from contextcliff_dagster.corpora import json_stream

    kept, json_stream._READ_AHEAD = json_stream._READ_AHEAD, ahead
    try:
        assert [value for _, value in stream.values()] == values
    finally:
        json_stream._READ_AHEAD = kept


def good(n: int) -> str:
    return json.dumps({"id": str(n), "context": "c", "question": "q", "answer": "a"}) + "\n"


BAD_LINES = {
    "not JSON": ("{broken\n", "not one JSON object"),
    "a list": ("[1, 2]\n", "not an object"),
    "NaN": ('{"context": "c", "question": "q", "answer": NaN}\n', "NaN"),
    "infinity": ('{"context": "c", "question": "q", "answer": Infinity}\n', "Infinity"),
    "no context": ('{"question": "q", "answer": "a"}\n', "has no context"),
    "null context": ('{"context": null, "question": "q", "answer": "a"}\n', "empty"),
    "empty context": ('{"context": "  ", "question": "q", "answer": "a"}\n', "empty context"),
    "context a number": ('{"context": 3, "question": "q", "answer": "a"}\n', "a number"),
    "no question": ('{"context": "c", "answer": "a"}\n', "has no question"),
    "no answers": ('{"context": "c", "question": "q"}\n', "has no answers"),
    "empty answers": ('{"context": "c", "question": "q", "answers": []}\n', "answers"),
    "blank answers": ('{"context": "c", "question": "q", "answers": ["", " "]}\n', "answers"),
    "answers an object": ('{"context": "c", "question": "q", "answers": {"a": 1}}\n', "an object"),
    "half a surrogate": ('{"context": "\\ud800", "question": "q", "answer": "a"}\n', "surrogate"),
    "position beyond 1": (
        '{"context": "c", "question": "q", "answer": "a", "evidence_position": 3}\n',
        "share",
    ),
    "level a word": (
        '{"context": "c", "question": "q", "answer": "a", "level": "hard"}\n',
        "whole",
    ),
    "too deep": ('{"a":' * 100_000 + "\n", "nested too deeply"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, case: str) -> None:
    line, word = BAD_LINES[case]
    path = tmp_path / "qa.jsonl"
    path.write_text(good(1) + "\n" + good(2) + line + good(3), encoding="utf-8")
    sentence = refusal(path)
    assert "line 4" in sentence
    assert word in sentence


def test_bytes_that_are_no_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(good(1).encode() + '{"context": "Caf\u00e9"}\n'.encode("latin-1"))
    assert "line 2 is not UTF-8 (byte 17 of the line is 0xe9)" in refusal(path)
    path.write_bytes(good(1).encode("utf-16"))
    assert "save it as UTF-8" in refusal(path)


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
def test_files_that_cannot_be_a_corpus_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"qa{ending}"
    assert "There is no file" in refusal(path)
    path.write_bytes(b"")
    assert "is empty" in refusal(path)
    path.write_bytes(b"\x1f\x8b\x08\x00rest")
    assert "compressed (gzip)" in refusal(path)
    path.write_bytes(b"\x7fELF\x00\x00binary" * 50)
    assert "binary" in refusal(path) or "not a Parquet file" in refusal(path)
    path.unlink()
    path.mkdir()
    assert "is a folder" in refusal(path)


@pytest.mark.parametrize("text", ["[]", "\n\n", "  ", "id,context,question,answer\n"])
def test_a_file_without_a_row_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / ("qa.csv" if "," in text else "qa.json")
    path.write_text(text)
    assert "holds no example" in refusal(path)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[{"context": "c", "question": "q", "answer": "a"},\n', "cut off"),
        ('[{"context": "c", "question": "q", "answer": "a"}', "cut off"),
        ('[{"context": "c", "question": "q", "answer": "a"}] {}', "goes on after"),
        (
            '[{"context": "c", "question": "q", "answer": "a"},\n {"context": }]',
            "line 2 is not JSON",
        ),
        ('[{"context": "c", "question": "q",\n "answer": NaN}]', "NaN"),
        ('[{"context": "c"', "line 1 is not JSON"),
        ('{"version": 1, "data": []}', "item 1) has no context"),
        ('["just text"]', "not an object"),
    ],
)
def test_broken_json_arrays_are_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    assert word in refusal(path)


def test_broken_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "qa.csv"
    path.write_text("context,question,answer\nc,q,a\nc,q\n")
    assert "line 3 has 2 fields, the header has 3" in refusal(path)
    path.write_text('context,question,answer\n"never closed,q,a\n')
    assert "line 2" in refusal(path)
    path.write_text("context,context,answer\nc,q,a\n")
    assert "twice" in refusal(path)
    path.write_text("context,question,answer\nc,q,nan\n")
    assert "line 2 has an empty 'answer'" in refusal(path)
    path = tmp_path / "qa.parquet"
    path.write_bytes(b"PAR1 and then nothing")
    assert "not readable Parquet" in refusal(path)
    pq.write_table(
        pa.table({"context": ["c", "c"], "question": ["q", "q"], "answer": ["a", None]}), path
    )
    assert "row 2 has an empty 'answer'" in refusal(path)
    pq.write_table(pa.table({"context": ["c"], "question": ["q"], "answer": [math.nan]}), path)
    assert "row 1 has an empty 'answer'" in refusal(path)


def test_wrong_options_are_refused() -> None:
    for options, word in (
        ({}, "needs the option 'path'"),
        ({"path": 3}, "must be text"),
        ({"path": "x", "colour": "red"}, "no option 'colour'"),
        ({"path": __file__}, "ending '.py' is not known"),
        ({"path": __file__, "format": "xml"}, "format 'xml' is not known"),
        ({"path": __file__, "format": "jsonl", "columns": {"ctx": "c"}}, "'ctx'"),
    ):
        with pytest.raises(CorpusError, match=word):
            open_corpus("file", options)
    with pytest.raises(CorpusError, match="there are file, reference"):
        open_corpus("narrativeqa", {})


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
