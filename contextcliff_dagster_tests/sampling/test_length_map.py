"""The length map counts every document exactly once and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts import DOCUMENTS, LENGTH_MAP, CorpusError, StoreError
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.tokenizers.tokenizers import TiktokenTokenizer, tiktoken_encoding
from contextcliff_dagster.store import read_table
from contextcliff_dagster_tests.support.paths import CHECKOUT as ROOT


class WordCounter:
    """Counts words, and how often it was asked about each text."""

    name = "words"
    fingerprint = "0" * 64

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        self.asked.update(texts)
        return [len(text.split()) for text in texts]


@pytest.fixture
def corpus_dir(tmp_path: Path) -> Path:
    """600 questions over 200 documents; document n has n + 1 words."""
    rows = [
        {
            "id": f"e{n}",
            "context": " ".join([f"w{n % 200}" + "x" * (n % 200)] * (n % 200 + 1)),
            "question": f"q{n}",
            "answer": "a",
        }
        for n in range(600)
    ]
    path = tmp_path / "qa.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    materialize_corpus(FileCorpus({"path": str(path)}), tmp_path / "corpus")
    return tmp_path / "corpus"


def test_each_document_is_counted_once_however_many_questions_share_it(corpus_dir: Path) -> None:
    counter = WordCounter()
    summary = build_length_map(corpus_dir, counter, corpus_dir / "map.parquet")
    assert set(counter.asked.values()) == {1}
    assert (summary.documents, summary.examples) == (200, 600)
    assert (summary.min_tokens, summary.max_tokens, summary.tokens) == (1, 200, 20_100)
    rows = read_table(corpus_dir / "map.parquet", LENGTH_MAP).to_pylist()
    assert [row["example_id"] for row in rows] == [f"e{n}" for n in range(600)]
    assert [row["length_tokens"] for row in rows] == [n % 200 + 1 for n in range(600)]


def test_two_builds_at_once_both_end_well(corpus_dir: Path) -> None:
    out = corpus_dir / "map.parquet"
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: build_length_map(corpus_dir, WordCounter(), out), range(8)))
    assert len(set(done)) == 1
    assert read_length_map(out).num_rows == 600
    assert {p.name for p in corpus_dir.iterdir()} == {
        "corpus.json",
        "documents.parquet",
        "examples.parquet",
        "map.parquet",
    }


def test_short_documents_can_be_left_out(corpus_dir: Path) -> None:
    out = corpus_dir / "map.parquet"
    build_length_map(corpus_dir, WordCounter(), out)
    assert min(read_length_map(out, 150)["length_tokens"].to_pylist()) == 150
    with pytest.raises(CorpusError, match=r"No document reaches sampling.min_tokens \(201\).*200"):
        read_length_map(out, 201)


def test_a_missing_damaged_or_mixed_up_corpus_is_refused(corpus_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="materialize it first"):
        build_length_map(tmp_path, WordCounter(), tmp_path / "map.parquet")
    documents = read_table(corpus_dir / "documents.parquet", DOCUMENTS)
    pq.write_table(documents.slice(1), corpus_dir / "documents.parquet")
    with pytest.raises(CorpusError, match="lacks document"):
        build_length_map(corpus_dir, WordCounter(), tmp_path / "map.parquet")
    assert not (tmp_path / "map.parquet").exists()
    (corpus_dir / "documents.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(StoreError, match="is damaged"):
        build_length_map(corpus_dir, WordCounter(), tmp_path / "map.parquet")
    with pytest.raises(StoreError, match="materialize it first"):
        read_length_map(tmp_path / "none.parquet")


def test_a_hundred_megabytes_of_text_take_less_than_three_hundred_of_memory() -> None:
    # As an installed package is: a checkout's first import compiles, in memory that counts here.
    package = ROOT / "contextcliff_dagster"
    subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / "length_map.py",
            "--megabytes",
            "100",
            "--memory-only",
            "--json",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    (memory,) = json.loads(done.stdout)["memory"]
    assert memory["above_interpreter_mb"] < 300
    assert memory["materialize_above_interpreter_mb"] < 300
    assert memory["text_mb"] >= 100


def test_the_map_is_a_table_of_the_declared_schema(corpus_dir: Path) -> None:
    out = corpus_dir / "map.parquet"
    build_length_map(corpus_dir, WordCounter(), out)
    assert pq.read_schema(out).remove_metadata() == LENGTH_MAP.arrow_schema().remove_metadata()
    assert pq.read_schema(out).field("length_tokens").metadata[b"unit"] == b"tokens"
    assert isinstance(read_length_map(out), pa.Table)


def test_documents_that_only_tiktoken_counts_rightly_are_counted_by_it(tmp_path: Path) -> None:
    odd = "it'ſ 'ſ IT'ſx " * 40
    texts = [("plain words " * 30 + str(n)) if n % 7 else odd + str(n) for n in range(60)]
    path = tmp_path / "qa.jsonl"
    rows = [
        {"id": f"e{n}", "context": text, "question": "q", "answer": "a"}
        for n, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    materialize_corpus(FileCorpus({"path": str(path)}), tmp_path / "corpus")
    tokenizer = TiktokenTokenizer("cl100k_base")
    tokenizer.compare()
    built = build_length_map(tmp_path / "corpus", tokenizer, tmp_path / "map.parquet")
    assert built.counted_by.startswith("fastokens ")
    found = read_table(tmp_path / "map.parquet", LENGTH_MAP).to_pylist()
    encode = tiktoken_encoding("cl100k_base").encode_ordinary
    assert [row["length_tokens"] for row in found] == [len(encode(text)) for text in texts]
    # It is the same tokenizer afterwards.
    assert tokenizer.count("plain words") == len(encode("plain words"))
