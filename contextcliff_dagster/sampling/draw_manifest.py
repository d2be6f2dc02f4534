"""Draw a manifest from a materialized corpus: its sample, with questions and texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    LENGTH_MAP,
    MANIFEST_EXAMPLES,
    LengthBin,
    StoreError,
    conform,
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

Locate = Callable[[str, Sequence[Sequence[str]]], Sequence[float | None]]
"""From a text and the accepted answers of each question on it to where each has its evidence."""
_BLOCK = 16
"""Texts that are put into an array at a time."""


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
    drawn = draw_sample(validate(length_map, LENGTH_MAP, "The length map"), bins, spec)
    rows = _rows_of(corpus_dir / "examples.parquet", "example_id", [d.example_id for d in drawn])
    examples = [
        {**row, "length_tokens": d.length_tokens, "bin": d.bin, "rank": d.rank}
        for row, d in zip(rows.to_pylist(), drawn, strict=True)
    ]
    texts = _documents_of(corpus_dir / "documents.parquet", sorted({d.document_id for d in drawn}))
    if tokenizer is not None:
        count_distances(examples, texts, tokenizer)
    if locate is not None:
        locate_evidence(examples, texts, locate)
    return Manifest(
        header={**header, "sample": asdict(spec)},
        bins=tuple(bins),
        examples=conform(examples, MANIFEST_EXAMPLES),
        read_documents=lambda: texts,
    )


def count_distances(
    examples: Sequence[dict[str, Any]], documents: pa.Table, tokenizer: Callable[[], Tokenizer]
) -> None:
    """Fill ``inter_evidence_tokens`` of rows whose metadata says where the evidence begins.

    The tokens of the text from the start of the first piece to the start of the last. A corpus's
    own number stays. ``tokenizer`` is called only where there is something to count.
    """
    spans = [(row, span) for row in examples if (span := _span(row)) is not None]
    if not spans:
        return
    texts = dict(zip(*(documents[c].to_pylist() for c in ("document_id", "text")), strict=True))
    between = [texts[row["document_id"]][first:last] for row, (first, last) in spans]
    counts = tokenizer().count_many(between)
    for (row, _), count in zip(spans, counts, strict=True):
        row["inter_evidence_tokens"] = count


def locate_evidence(
    examples: Sequence[dict[str, Any]], documents: pa.Table, locate: Locate
) -> None:
    """Fill ``evidence_position`` of rows that have none: where their first piece of evidence
    begins, if they name it, else by ``locate``."""
    unknown: dict[str, list[dict[str, Any]]] = {}
    for row in examples:
        if row["evidence_position"] is None:
            unknown.setdefault(row["document_id"], []).append(row)
    ids = documents["document_id"].to_pylist()
    for number, (document_id, text) in enumerate(zip(ids, documents["text"], strict=True), 1):
        if rows := unknown.get(document_id):
            _locate_in(text.as_py(), rows, locate)
        report_step("finding answers in documents", number, len(ids))


def _locate_in(text: str, rows: Sequence[dict[str, Any]], locate: Locate) -> None:
    left = []
    for row in rows:
        metadata = json.loads(row["metadata"]) if row["metadata"] else {}
        if spans := spans_of(metadata, text):
            row["evidence_position"] = min(spans)[0] / len(text)
        else:
            left.append(row)
    for row, at in zip(left, locate(text, [row["answers"] for row in left]), strict=True):
        row["evidence_position"] = at


def _span(row: Mapping[str, Any]) -> tuple[int, int] | None:
    if row["inter_evidence_tokens"] is not None or not row["metadata"]:
        return None
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
