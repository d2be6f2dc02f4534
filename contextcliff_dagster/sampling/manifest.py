"""The manifest: the frozen, self-contained sample that everything downstream reads."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import SCHEMA_VERSION, LengthBin, StoreError
from contextcliff_dagster.corpora.materialize import row_example
from contextcliff_dagster.freed_memory import return_freed_memory
from contextcliff_dagster.sampling.sample_source import PlannedExample

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.arrays import Ints

_ROWS_AT_ONCE = 10_000
_KEPT_ROWS = 100_000
"""Examples that are kept as objects; bins used longest ago are made again."""


@dataclass(frozen=True)
class Manifest:
    """A frozen sample.

    ``examples``: table ``manifest_examples``, ordered by bin and rank. ``read_documents`` gives
    :attr:`documents`; of a manifest in the store it reads the file, and raises StoreError where
    that is another one by now. ``known_sha256``: :attr:`sha256` where it need not be computed. The
    same content has the same :attr:`sha256`; when it was made (``header["created_at"]``) is not
    part of it.
    """

    header: Mapping[str, Any]
    bins: Sequence[LengthBin]
    examples: pa.Table
    read_documents: Callable[[], pa.Table] = field(repr=False)
    known_sha256: str | None = None
    schema_version: str = SCHEMA_VERSION

    @cached_property
    def documents(self) -> pa.Table:
        """Table ``documents``, ordered by id: exactly the texts that the examples ask about."""
        return self.read_documents()

    def forget_documents(self) -> None:
        """Let go of the texts; where they are wanted again, they are read again."""
        for name in ("documents", "_texts"):
            self.__dict__.pop(name, None)
        return_freed_memory()

    @property
    def content(self) -> dict[str, Any]:
        """What is under the hash apart from the examples, as plain values."""
        return {
            "schema_version": self.schema_version,
            "header": {k: v for k, v in self.header.items() if k != "created_at"},
            "bins": [asdict(b) for b in self.bins],
        }

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of :attr:`content` with the rows of ``examples``, as canonical JSON: sorted
        keys, no spaces, UTF-8. Texts enter by their document ids."""
        return self.known_sha256 or self.computed_sha256()

    def computed_sha256(self) -> str:
        """Compute :attr:`sha256` from the content."""
        digest = hashlib.sha256()
        content = {name: canonical_json(of) for name, of in self.content.items()}
        digest.update(f'{{"bins":{content.pop("bins")},"examples":['.encode())
        between = ""
        for batch in self.examples.to_batches(max_chunksize=_ROWS_AT_ONCE):
            if batch.num_rows:
                digest.update(f"{between}{canonical_json(batch.to_pylist())[1:-1]}".encode())
                between = ","
        rest = ",".join(f'"{name}":{content[name]}' for name in sorted(content))
        digest.update(f"],{rest}}}".encode())
        return digest.hexdigest()

    @cached_property
    def _rows(self) -> dict[str, Ints]:
        """Bin -> numbers of its rows, in draw order."""
        import numpy as np

        named = self.examples["bin"].combine_chunks().dictionary_encode()
        codes = named.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(named.dictionary))
        ends = dict(zip(named.dictionary.to_pylist(), np.cumsum(counts).tolist(), strict=True))
        sizes = dict(zip(ends, counts.tolist(), strict=True))
        last = {b.bin: ends.get(b.bin, 0) for b in self.bins}
        return {name: order[end - sizes.get(name, 0) : end] for name, end in last.items()}

    @cached_property
    def _made(self) -> OrderedDict[str, list[PlannedExample]]:
        """Bin -> its examples as objects, those used last at the end."""
        return OrderedDict()

    @cached_property
    def _texts(self) -> TextColumn:
        return TextColumn(self.documents["text"])

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.documents["document_id"].to_pylist())}

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """The first ``n`` examples of a bin, in draw order; all it has where it has fewer.

        Raises:
            StoreError: the manifest has no such bin.
        """
        if bin not in self._rows:
            raise StoreError(f"The manifest has no bin {bin!r}; it has {', '.join(self._rows)}.")
        rows = self._rows[bin][:n]
        made = self._made.pop(bin, [])
        if len(made) < len(rows):
            made = list(self._examples_of(rows))
        self._made[bin] = made
        while len(self._made) > 1 and sum(map(len, self._made.values())) > _KEPT_ROWS:
            self._made.popitem(last=False)
        return made[:n]

    def _examples_of(self, rows: Ints) -> Iterator[PlannedExample]:
        for batch in self.examples.take(rows).to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield PlannedExample(
                    row_example(row), row["length_tokens"], row["bin"], row["rank"]
                )

    def document_text(self, document_id: str) -> str:
        """The text of one of the sample's documents.

        Raises:
            StoreError: it is not among them.
        """
        if document_id not in self._position:
            raise StoreError(f"The manifest has no document {document_id[:12]!r}.")
        return self._texts[self._position[document_id]]


class TextColumn:
    """A column of texts, each found in the same time however many pieces the column lies in.

    Arrow looks through all pieces each time it is asked for one value.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._pieces = column.chunks
        self._ends = list(accumulate(map(len, self._pieces)))

    def __getitem__(self, number: int) -> str:
        at = bisect_right(self._ends, number)
        piece = self._pieces[at]
        return str(piece[number - self._ends[at] + len(piece)].as_py())


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and without spaces. Raises ValueError for nan."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
