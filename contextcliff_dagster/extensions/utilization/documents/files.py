"""Documents and their list in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError, conform
from contextcliff_dagster.extensions.utilization.tables import UTILIZATION_DOCUMENTS
from contextcliff_dagster.store import Store, atomic_path, read_table, slug

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.utilization.documents.making import Batch

LISTED = (
    *("document_id", "benchmark", "scale", "seed", "format", "arm", "length_tokens", "records"),
    *("corrupted", "questions"),
)
"""Columns of the documents that the list has, too: all that asking and scoring need."""


def documents_dir(store: Store, study: str) -> Path:
    """Folder of the documents and of their list, ``manifest.json``."""
    return store.study_dir(study) / "utilization_documents"


def batch_file(store: Store, study: str, batch: Batch) -> Path:
    """The file of a batch."""
    folder = documents_dir(store, study) / slug(f"{batch.benchmark}-{batch.scale}")
    return folder / f"{seed_key(batch.seed)}.parquet"


def seed_key(seed: int) -> str:
    """Return a seed as partition key; keys sort as seeds do.

    >>> seed_key(7)
    's007'
    """
    return f"s{seed:03d}"


def write_batch(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the documents of a batch, all or none, one text in memory at a time; each text can be
    read alone.

    Raises:
        StoreError: the file cannot be written.
    """
    import pyarrow.parquet as pq

    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary,
            UTILIZATION_DOCUMENTS.arrow_schema(),
            compression="zstd",
            use_dictionary=False,
            write_statistics=False,
        ) as file,
    ):
        for row in rows:
            file.write_table(conform([row], UTILIZATION_DOCUMENTS))


def read_batch(path: Path, made_by: str) -> list[dict[str, Any]] | None:
    """Return the `LISTED` columns of a batch; None where there is none, or none made by this."""
    with suppress(StoreError):
        table = read_table(path, UTILIZATION_DOCUMENTS, {"made_by", *LISTED})
        rows: list[dict[str, Any]] = table.to_pylist()
        if rows and {row.pop("made_by") for row in rows} == {made_by}:
            return rows
    return None


def read_text(path: Path, document_id: str) -> str:
    """Return the text of one document.

    Raises:
        StoreError: it is not there, or not the text that was made.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            ids = file.read(["document_id"])["document_id"].to_pylist()
            row = ids.index(document_id)
            text = str(file.read_row_group(row, ["text"])["text"][0].as_py())
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(
            f"{path} has no document {document_id[:12]} ({error}); delete it and prepare the study "
            "again."
        ) from error
    if hashlib.sha256(text.encode()).hexdigest() != document_id:
        raise StoreError(
            f"{path}: document {document_id[:12]} is not the text that was made; delete the file "
            "and prepare the study again."
        )
    return text


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a batch with all columns, one text in memory at a time.

    Raises:
        StoreError: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for rows in file.iter_batches(batch_size=1):
                yield from rows.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); delete it and prepare the study again."
        ) from error


def summary(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what to show of documents."""
    tokens = [document["length_tokens"] for document in documents]
    return {
        "documents": len(documents),
        "tokens": sum(tokens),
        "shortest_tokens": min(tokens, default=0),
        "longest_tokens": max(tokens, default=0),
        "questions": sum(len(one) for one in _questions(documents)),
    }


def _questions(documents: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Any]]:
    for document in documents:
        yield json.loads(document["questions"])
