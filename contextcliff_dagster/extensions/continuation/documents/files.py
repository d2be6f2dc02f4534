"""Documents in the store: a Parquet file for each point, one of human passages for each text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.extensions.continuation.tables import CONTINUATION_DOCUMENTS
from contextcliff_dagster.store import Store, read_table, write_table

LISTED = ("document_id", "kind", "source", "passage", "context_tokens", "length_tokens")
"""Columns of the documents that the list has, too: all that asking needs."""
HUMAN = "human"
"""Partition of the human passages, next to those of the points."""


def documents_dir(store: Store, study: str) -> Path:
    """Folder of the documents and of their list."""
    return store.study_dir(study) / "continuation_documents"


def part_file(store: Store, study: str, text: str, part: str) -> Path:
    """The file of a partition: ``part`` is `point_key` of a point, or `HUMAN`."""
    return documents_dir(store, study) / text / f"{part}.parquet"


def point_key(number: int) -> str:
    """Return a point's number as partition key; keys sort as points do.

    >>> point_key(7)
    'p007'
    """
    return f"p{number:03d}"


def write_part(path: Path, rows: Iterable[Mapping[str, Any]], made_by: str) -> None:
    """Write the documents of a partition, all or none.

    Raises:
        StoreError: the file cannot be written.
    """
    write_table(path, [{**row, "made_by": made_by} for row in rows], CONTINUATION_DOCUMENTS)


def read_part(path: Path, made_by: str | None = None) -> list[dict[str, Any]] | None:
    """Return the `LISTED` columns of a partition; None unless there is one made by this."""
    with suppress(StoreError):
        table = read_table(path, CONTINUATION_DOCUMENTS, {"made_by", *LISTED})
        rows: list[dict[str, Any]] = table.to_pylist()
        makers = {row.pop("made_by") for row in rows}
        if rows and (made_by is None or makers == {made_by}):
            return rows
    return None


def read_texts(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a partition with their texts.

    Raises:
        StoreError: the file cannot be read, or a text is not the one that was made.
    """
    rows: list[dict[str, Any]] = read_table(path, CONTINUATION_DOCUMENTS).to_pylist()
    for row in rows:
        if hashlib.sha256(row["text"].encode()).hexdigest() != row["document_id"]:
            raise StoreError(
                f"{path}: document {row['document_id'][:12]} is not the text that was made; delete "
                "the file and prepare the study again."
            )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what to show of documents."""
    contexts = [row["length_tokens"] for row in rows if row["kind"] == "context"]
    return {
        "contexts": len(contexts),
        "tokens": sum(contexts),
        "longest_tokens": max(contexts, default=0),
        "human_passages": sum(row["kind"] == "human" for row in rows),
    }
