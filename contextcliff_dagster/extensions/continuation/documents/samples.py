"""The points of a study as examples, by cell: which context is read, and what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import Example, StoreError
from contextcliff_dagster.extensions.continuation.cells import Cell
from contextcliff_dagster.extensions.continuation.documents.files import read_texts
from contextcliff_dagster.sampling.sample_source import PlannedExample

TASK = "continuation"
Row = Mapping[str, Any]


class ContinuationSamples:
    """A `SampleSource` over contexts (`files.LISTED`) in cells that one recipe asks.

    ``asked``: the instruction. ``file_of``: a context's id -> its file in the store.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        documents: Sequence[Row],
        asked: str,
        file_of: Mapping[str, Path],
    ) -> None:
        self._cells = {cell.key: cell for cell in cells}
        self._contexts = [row for row in documents if row["kind"] == "context"]
        self._asked, self._file_of = asked, file_of

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]:
        """Return the first ``n`` points of a cell: the first of each text, then the second."""
        if (cell := self._cells.get(bin)) is None:
            return []
        rows = [row for row in self._contexts if row["context_tokens"] == cell.tokens]
        rows.sort(key=lambda row: (row["passage"].rpartition("-")[2], row["source"]))
        return [
            PlannedExample(self._example(cell, row), int(row["length_tokens"]), bin, rank)
            for rank, row in enumerate(rows[:n])
        ]

    def document_text(self, document_id: str) -> str:
        """Return a context's text.

        Raises:
            StoreError: the store does not have it.
        """
        if document_id not in self._file_of:
            raise StoreError(f"There is no context {document_id[:12]}; prepare the study again.")
        file = self._file_of[document_id]
        texts = _texts(file, file.stat().st_mtime_ns if file.exists() else 0)
        if document_id not in texts:
            raise StoreError(f"{file} was made anew; run the same command again.")
        return texts[document_id]

    def _example(self, cell: Cell, row: Row) -> Example:
        return Example(
            f"{cell.key}-{row['passage']}",
            row["document_id"],
            self._asked,
            (),
            TASK,
            {
                "text": row["source"],
                "passage": row["passage"],
                "context_tokens": cell.tokens,
                "arm": cell.arm,
            },
        )


@lru_cache(maxsize=4)
def _texts(file: Path, changed: int) -> dict[str, str]:
    return {row["document_id"]: row["text"] for row in read_texts(file)}
