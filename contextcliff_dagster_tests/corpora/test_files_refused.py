"""A file that is no good is refused in a sentence: what, where, what to do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.corpora.test_files import read


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        read(path, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(path) in sentence
    return sentence


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
    path.write_bytes(good(1).encode("utf-16")[:-1])
    assert "'utf-16-le' codec can't decode" in refusal(path)


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
    with pytest.raises(CorpusError, match=r"there are .*file, .*python-source, .*reference"):
        open_corpus("newspapers", {})
