"""A corpus is written once, each document once, all at once or not at all."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import DOCUMENTS, EXAMPLES, CorpusError, StoreError
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.materialize import materialize_corpus, read_summary, row_example
from contextcliff_dagster.corpora.registry import ReferenceCorpus
from contextcliff_dagster.store import read_table


def jsonl(path: Path, rows: list[dict[str, object]]) -> FileCorpus:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return FileCorpus({"path": str(path)})


def test_documents_stand_once_and_examples_in_order(tmp_path: Path) -> None:
    texts = [f"text {n} " + "x" * random.Random(n).randrange(100_000) for n in range(200)]
    rows: list[dict[str, object]] = [
        {
            "id": f"e{n}",
            "context": texts[n * 7 % 200],
            "question": f"q{n}",
            "answers": ["a", "b"],
            "topic": n,
        }
        for n in range(600)
    ]
    corpus = jsonl(tmp_path / "qa.jsonl", rows)
    summary = materialize_corpus(corpus, tmp_path / "out")
    assert (summary.documents, summary.examples, summary.repeated_rows) == (200, 600, 0)
    assert summary.text_bytes == sum(map(len, texts))
    assert read_summary(tmp_path / "out") == summary
    documents = read_table(tmp_path / "out" / "documents.parquet", DOCUMENTS)
    assert sorted(documents["text"].to_pylist()) == sorted(texts)
    assert documents["document_id"].to_pylist() == [
        document_id(t) for t in documents["text"].to_pylist()
    ]
    examples = read_table(tmp_path / "out" / "examples.parquet", EXAMPLES)
    assert [row_example(row) for row in examples.to_pylist()] == list(corpus.examples())


def test_two_rows_with_the_same_id_are_refused_naming_both(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": name, "context": f"c{n}", "question": "q", "answer": "a"}
        for n, name in enumerate(["a", "b", "a"])
    ]
    with pytest.raises(CorpusError, match=r"line 3 repeats the id 'a' of .*line 1"):
        materialize_corpus(jsonl(tmp_path / "qa.jsonl", rows), tmp_path / "out")
    assert not (tmp_path / "out" / "corpus.json").exists()
    assert not list((tmp_path / "out").glob("*"))


def test_rows_without_ids_that_repeat_are_left_out_and_counted(tmp_path: Path) -> None:
    row: dict[str, object] = {"context": "c", "question": "q", "answer": "a"}
    summary = materialize_corpus(
        jsonl(tmp_path / "qa.jsonl", [row, row, {**row, "answer": "b"}]), tmp_path
    )
    assert (summary.examples, summary.repeated_rows) == (2, 1)


def test_a_bad_row_leaves_an_earlier_corpus_whole(tmp_path: Path) -> None:
    row: dict[str, object] = {"context": "c", "question": "q", "answer": "a"}
    out = tmp_path / "out"
    first = materialize_corpus(jsonl(tmp_path / "good.jsonl", [row]), out)
    with pytest.raises(CorpusError, match="line 2"):
        materialize_corpus(jsonl(tmp_path / "bad.jsonl", [row, {"context": "d"}]), out)
    assert read_summary(out) == first
    assert read_table(out / "examples.parquet", EXAMPLES).num_rows == 1
    assert len(list(out.iterdir())) == 3


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a file is where a folder is needed"):
        materialize_corpus(ReferenceCorpus({"documents": 3}), tmp_path / "file" / "out")


def test_a_missing_or_damaged_summary_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="materialize it first"):
        read_summary(tmp_path)
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        read_summary(tmp_path)
