"""Draw a manifest from a materialized corpus: its sample, with questions and texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    LENGTH_MAP,
    MANIFEST_EXAMPLES,
    LengthBin,
    StoreError,
    validate,
)
from contextcliff_dagster.corpora.corpus import EVIDENCE_CHARACTERS
from contextcliff_dagster.freed_memory import lean_arrow
from contextcliff_dagster.sampling.controls import spans_of
from contextcliff_dagster.sampling.draw import SampleSpec, draw_sample
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

Item = TypeVar("Item")
Locate = Callable[[str, Sequence[Sequence[str]]], Sequence[float | None]]
"""From a text and the accepted answers of each question on it to where each has its evidence."""
_BLOCK = 16
"""Texts that are at hand at a time."""
_ROWS_AT_ONCE = 10_000
_PLACE = ("length_tokens", "bin", "rank")


@lean_arrow()
def draw_manifest(
    corpus_dir: Path,
    length_map: pa.Table,
    bins: Sequence[LengthBin],
    spec: SampleSpec,
    header: Mapping[str, Any],
    tokenizer: Callable[[], Tokenizer] | None = None,
    locate: Locate | None = None,
) -> Manifest:
    """Draw the sample and gather its questions and texts from a materialized corpus.

    ``header`` should name study, tokenizer and corpus fingerprint; the sample's spec is added as
    ``sample``. ``tokenizer`` opens the study's, where an example says in characters how far its
    pieces of evidence lie apart. ``locate`` finds the evidence of questions that do not say where
    theirs is; without it they have no position.

    Raises:
        CorpusError: see :func:`sampling.draw.draw_sample`.
        StoreError: the corpus is missing, damaged, or not the one of the length map.
    """
    import pyarrow as pa

    drawn = draw_sample(validate(length_map, LENGTH_MAP, "The length map"), bins, spec)
    rows = _rows_of(corpus_dir / "examples.parquet", "example_id", [d.example_id for d in drawn])
    places = {name: pa.array([getattr(d, name) for d in drawn]) for name in _PLACE}
    wanted = sorted({d.document_id for d in drawn})
    del drawn  # a million of them take some 300 MB
    examples = pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **places})
    examples = validate(examples, MANIFEST_EXAMPLES, str(corpus_dir))
    texts = _documents_of(corpus_dir / "documents.parquet", wanted)
    if tokenizer is not None:
        examples = count_distances(examples, texts, tokenizer)
    if locate is not None:
        examples = locate_evidence(examples, texts, locate)
    return Manifest(
        header={**header, "sample": asdict(spec)},
        bins=tuple(bins),
        examples=examples,
        read_documents=lambda: texts,
    )


def count_distances(
    examples: pa.Table, documents: pa.Table, tokenizer: Callable[[], Tokenizer]
) -> pa.Table:
    """Return the examples with ``inter_evidence_tokens`` where the metadata say where the pieces of
    evidence begin.

    The tokens of the text from the start of the first piece to the start of the last. A corpus's
    own number stays. ``tokenizer`` is called only where there is something to count.
    """
    import pyarrow.compute as pc

    named = pc.fill_null(pc.match_substring(examples["metadata"], EVIDENCE_CHARACTERS), False)
    unknown = pc.and_(pc.is_null(examples["inter_evidence_tokens"]), named)
    distances = examples["inter_evidence_tokens"].to_pylist()
    opened: Tokenizer | None = None
    for block in _in_blocks(_grouped(examples, documents, unknown)):
        spans = [
            (row["number"], text[slice(*span)])
            for text, rows in block
            for row in rows
            if (span := _span(row)) is not None
        ]
        if spans:
            opened = opened or tokenizer()
            counts = opened.count_many([between for _, between in spans])
            for (number, _), count in zip(spans, counts, strict=True):
                distances[number] = count
    return _with_column(examples, "inter_evidence_tokens", distances)


def locate_evidence(examples: pa.Table, documents: pa.Table, locate: Locate) -> pa.Table:
    """Return the examples with ``evidence_position`` where that is unknown: where their first piece
    of evidence begins, if they name it, else by ``locate``."""
    import pyarrow.compute as pc

    unknown = pc.is_null(examples["evidence_position"])
    positions = examples["evidence_position"].to_pylist()
    for number, (text, rows) in enumerate(_grouped(examples, documents, unknown), 1):
        for row, at in zip(rows, _located(text, rows, locate), strict=True):
            positions[row["number"]] = at
        report_step("finding answers in documents", number, documents.num_rows)
    return _with_column(examples, "evidence_position", positions)


def _located(
    text: str, rows: Sequence[Mapping[str, Any]], locate: Locate
) -> Iterator[float | None]:
    spans = [spans_of(json.loads(row["metadata"] or "{}"), text) for row in rows]
    left = [row["answers"] for row, own in zip(rows, spans, strict=True) if not own]
    found = iter(locate(text, left))
    return (min(own)[0] / len(text) if own else next(found) for own in spans)


def _grouped(
    examples: pa.Table, documents: pa.Table, wanted: pa.ChunkedArray
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each document's text with those of its examples that are ``wanted``, and their numbers."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = np.flatnonzero(wanted.to_numpy())
    owners = pc.index_in(
        examples["document_id"].take(numbers), documents["document_id"].combine_chunks()
    ).to_numpy()
    order = np.argsort(owners, kind="stable")
    numbers, owners = numbers[order], owners[order]
    rows = examples.select(["metadata", "answers"]).take(numbers)
    rows = rows.append_column("number", pa.array(numbers)).append_column("owner", pa.array(owners))
    batches = rows.to_batches(max_chunksize=_ROWS_AT_ONCE)
    each = (row for batch in batches for row in batch.to_pylist())
    for owner, own in groupby(each, lambda row: row["owner"]):
        yield documents["text"][owner].as_py(), list(own)


def _in_blocks(items: Iterator[Item]) -> Iterator[list[Item]]:
    while block := list(islice(items, _BLOCK)):
        yield block


def _with_column(examples: pa.Table, name: str, values: Sequence[float | None]) -> pa.Table:
    import pyarrow as pa

    at = examples.column_names.index(name)
    return examples.set_column(at, name, pa.array(values, examples.schema.field(name).type))


def _span(row: Mapping[str, Any]) -> tuple[int, int] | None:
    places = json.loads(row["metadata"]).get(EVIDENCE_CHARACTERS)
    # A field of that name in a file of one's own may hold anything.
    usable = isinstance(places, list) and all(type(one) is int and one >= 0 for one in places)
    return (min(places), max(places)) if usable and len(places) > 1 else None


def _rows_of(path: Path, key: str, wanted: Sequence[str]) -> pa.Table:
    """Rows of a Parquet file by key, in the order wanted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(_found(path, key, wanted))
    order = pc.index_in(pa.array(wanted, pa.string()), value_set=rows[key].combine_chunks())
    if order.null_count:
        raise _lacking(path, key, wanted[order.to_pylist().index(None)])
    return rows.take(order)


def _documents_of(path: Path, wanted: Sequence[str]) -> pa.Table:
    """The table ``documents`` of these ids, in their order.

    Filtering, joining and sorting in Arrow has three copies of the texts; this has one.
    """
    import pyarrow as pa

    place = {name: at for at, name in enumerate(wanted)}
    texts: list[bytes | None] = [None] * len(wanted)
    for rows in _found(path, "document_id", wanted):
        group = validate(rows, DOCUMENTS, str(path.parent))
        # As bytes: a text in a Python string takes up to four times as much.
        column = group["text"].cast(pa.binary())
        for name, text in zip(group["document_id"].to_pylist(), column, strict=True):
            texts[place[name]] = text.as_py()
    if None in texts:
        raise _lacking(path, "document_id", wanted[texts.index(None)])
    blocks = [DOCUMENTS.arrow_schema().empty_table()]
    for first in range(0, len(wanted), _BLOCK):
        block = slice(first, first + _BLOCK)
        text = pa.array(texts[block], pa.binary()).cast(pa.string())
        texts[block] = [None] * len(text)
        blocks.append(pa.table([wanted[block], text], schema=DOCUMENTS.arrow_schema()))
    return pa.concat_tables(blocks)


def _found(path: Path, key: str, wanted: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each row group of a Parquet file whose key is wanted, as they lie there."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = pa.array(wanted, pa.string())
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield file.schema_arrow.empty_table()
            for group in range(file.num_row_groups):
                keys = file.read_row_group(group, columns=[key], use_threads=False)[key]
                mask = pc.is_in(keys, value_set=names)
                if pc.any(mask).as_py():
                    yield file.read_row_group(group, use_threads=False).filter(mask)
    except FileNotFoundError as error:
        raise StoreError(f"There is no corpus at {path}; materialize it first.") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); materialize the corpus again.") from error


def _lacking(path: Path, key: str, name: str) -> StoreError:
    return StoreError(
        f"{path} lacks {key} {name[:40]!r} of the length map; materialize corpus and length map "
        "again."
    )
