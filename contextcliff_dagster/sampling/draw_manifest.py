"""Draw a manifest from a materialized corpus: its sample, with questions and texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
from contextcliff_dagster.sampling.draw import SampleSpec, draw_sample
from contextcliff_dagster.sampling.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


@lean_arrow()
def draw_manifest(
    corpus_dir: Path,
    length_map: pa.Table,
    bins: Sequence[LengthBin],
    spec: SampleSpec,
    header: Mapping[str, Any],
    tokenizer: Callable[[], Tokenizer] | None = None,
) -> Manifest:
    """Draw the sample and gather its questions and texts from a materialized corpus.

    ``header`` should name study, tokenizer and corpus fingerprint; the sample's spec is added as
    ``sample``. ``tokenizer`` opens the study's, where an example says in characters how far its
    pieces of evidence lie apart.

    Raises:
        CorpusError: see :func:`sampling.draw.draw_sample`.
        StoreError: the corpus is missing, damaged, or not the one of the length map.
    """
    import pyarrow as pa

    drawn = draw_sample(validate(length_map, LENGTH_MAP, "The length map"), bins, spec)
    rows = _rows_of(corpus_dir / "examples.parquet", "example_id", [d.example_id for d in drawn])
    examples = [
        {**row, "length_tokens": d.length_tokens, "bin": d.bin, "rank": d.rank}
        for row, d in zip(rows.to_pylist(), drawn, strict=True)
    ]
    documents = _rows_of(
        corpus_dir / "documents.parquet", "document_id", sorted({d.document_id for d in drawn})
    )
    if tokenizer is not None:
        count_distances(examples, documents, tokenizer)
    texts = validate(pa.table(documents), DOCUMENTS, str(corpus_dir))
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


def _span(row: Mapping[str, Any]) -> tuple[int, int] | None:
    if row["inter_evidence_tokens"] is not None or not row["metadata"]:
        return None
    places = json.loads(row["metadata"]).get(EVIDENCE_CHARACTERS)
    # A field of that name in a file of one's own may hold anything.
    usable = isinstance(places, list) and all(type(one) is int and one >= 0 for one in places)
    return (min(places), max(places)) if usable and len(places) > 1 else None


def _rows_of(path: Path, key: str, wanted: Sequence[str]) -> pa.Table:
    """Rows of a Parquet file by key, in the order wanted; row group by row group."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    names = pa.array(wanted, pa.string())
    pieces = []
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                keys = file.read_row_group(group, columns=[key], use_threads=False)[key]
                mask = pc.is_in(keys, value_set=names)
                if pc.any(mask).as_py():
                    pieces.append(file.read_row_group(group, use_threads=False).filter(mask))
            rows = pa.concat_tables(pieces) if pieces else file.schema_arrow.empty_table()
    except FileNotFoundError as error:
        raise StoreError(f"There is no corpus at {path}; materialize it first.") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); materialize the corpus again.") from error
    order = pc.index_in(names, value_set=rows[key].combine_chunks())
    if order.null_count:
        raise StoreError(
            f"{path} lacks {key} {wanted[order.to_pylist().index(None)][:40]!r} of the length map; "
            "materialize corpus and length map again."
        )
    return rows.take(order)
