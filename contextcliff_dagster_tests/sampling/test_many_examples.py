"""A large sample is prepared in columns: no second copy of it, no search through its pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import DOCUMENTS, Document, Example, StoreError, conform
from contextcliff_dagster.corpora.corpus import Entry, StreamedCorpus, document_id
from contextcliff_dagster.corpora.materialize import materialize_corpus
from contextcliff_dagster.sampling import draw_manifest as draw_manifest_module
from contextcliff_dagster.sampling.bins import BinSpec, make_bins
from contextcliff_dagster.sampling.draw_manifest import SampleSpec, _documents_of, draw_manifest
from contextcliff_dagster.sampling.length_map import build_length_map, read_length_map
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import write_table

EXAMPLES, QUESTIONS = 8_000, 4
LONG = "Why is it so? " * 20
POOL = pa.proxy_memory_pool(pa.system_memory_pool())
"""Outlives what is allocated in it."""


class Words:
    """Counts words."""

    name = fingerprint = "words"

    def count_many(self, texts: list[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class Wordy(StreamedCorpus):
    """Short documents; whatever is long of their questions has a column of its own."""

    name = "wordy"

    def fingerprint(self) -> str:
        return "wordy"

    def entries(self) -> Iterator[Entry]:
        for number in range(EXAMPLES // QUESTIONS):
            text = f"d{number}" + " w" * (number % 50)
            for nth in range(QUESTIONS):
                asked = f"{nth} of {number}? {LONG}"
                name = document_id(text)
                more = {"domain": LONG, "source": LONG, "note": LONG}
                example = Example(f"e{number}-{nth}", name, asked, (LONG,), "lookup", more)
                yield Entry(Document(name, text), example, f"row {number}")


@pytest.fixture
def corpus_dir(tmp_path: Path) -> Path:
    materialize_corpus(Wordy(), tmp_path)
    build_length_map(tmp_path, Words(), tmp_path / "length_map.parquet")
    return tmp_path


def test_a_sample_is_drawn_without_a_second_copy(
    corpus_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = corpus_dir / "length_map.parquet"
    lengths = read_length_map(path)
    bins = make_bins(
        lengths["length_tokens"].to_pylist(), lengths["document_id"].to_pylist(), BinSpec(count=4)
    )
    monkeypatch.setattr(pa, "system_memory_pool", lambda: POOL)
    drawn = draw_manifest(corpus_dir, path, bins, SampleSpec(EXAMPLES, 0, QUESTIONS), {})
    assert drawn.examples.num_rows == EXAMPLES
    # Of one column there are three for a moment: as read, in one piece, in order.
    assert POOL.max_memory() < 1.8 * (drawn.examples.nbytes + drawn.documents.nbytes)


def test_the_column_of_texts_is_opened_once_for_all_of_them() -> None:
    names = [document_id(str(number)) for number in range(40)]
    rows = [{"document_id": name, "text": str(number)} for number, name in enumerate(names)]
    opened: Counter[str] = Counter()

    class Counted:
        def __getitem__(self, name: str) -> Any:
            opened[name] += 1
            return conform(rows, DOCUMENTS)[name]

    documents: Any = Counted()
    manifest = Manifest({}, (), pa.table({}), lambda: documents)
    assert [manifest.document_text(name) for name in names] == [str(n) for n in range(40)]
    assert opened == {"document_id": 1, "text": 1}


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3)), min_size=5, max_size=60))
def test_documents_by_name_and_by_number_give_the_same_bins(corpus: list[tuple[int, int]]) -> None:
    lengths = [length for length, questions in corpus for _ in range(questions)]
    owners = [n for n, (_, questions) in enumerate(corpus) for _ in range(questions)]
    spec = BinSpec(count=5, starved_below=2)
    named = make_bins(lengths, [f"d{n}" for n in owners], spec)
    assert named == make_bins(np.array(lengths), np.array(owners), spec)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, unique=True),
    bytes_at_once=st.integers(0, 30),
    data=st.data(),
)
def test_texts_are_those_of_the_corpus_however_they_lie_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    bytes_at_once: int,
    data: st.DataObject,
) -> None:
    file = tmp_path_factory.mktemp("corpus") / "documents.parquet"
    rows = [{"document_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    write_table(file, rows, DOCUMENTS)
    wanted = data.draw(st.permutations(rows))[: data.draw(st.integers(1, len(rows)))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contextcliff_dagster.sampling.draw_manifest._PIECE_BYTES", bytes_at_once)
        found = _documents_of(file, [row["document_id"] for row in wanted])
    assert found.to_pylist() == wanted
    assert found.schema == DOCUMENTS.arrow_schema()


@pytest.mark.parametrize("later", [["a"], ["a", "bb", "c"]], ids=["lacks one", "another size"])
def test_a_corpus_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: list[str]
) -> None:
    file = tmp_path / "documents.parquet"

    def write(texts: list[str]) -> None:
        rows = [{"document_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
        write_table(file, rows, DOCUMENTS)

    found = draw_manifest_module._placed

    def then_replaced(*given: Any) -> Iterator[tuple[int, bytes]]:
        yield from found(*given)
        write(later)

    write(["a", "b", "c"])
    monkeypatch.setattr(draw_manifest_module, "_placed", then_replaced)
    with pytest.raises(StoreError, match=r"documents.parquet changed while it was read"):
        _documents_of(file, ["d2", "d0", "d1"])


def test_a_corpus_that_nobody_may_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", denied)
    with pytest.raises(StoreError, match=r"cannot be read \(.*Permission denied"):
        _documents_of(tmp_path / "documents.parquet", ["d0"])


def test_bytes_that_are_no_text_are_a_damaged_corpus(tmp_path: Path) -> None:
    file = tmp_path / "documents.parquet"
    offsets = pa.py_buffer(np.array([0, 1], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    write_table(file, pa.table([["d0"], text], schema=DOCUMENTS.arrow_schema()), DOCUMENTS)
    with pytest.raises(StoreError, match="is damaged"):
        _documents_of(file, ["d0"])
