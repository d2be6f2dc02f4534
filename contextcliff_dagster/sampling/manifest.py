"""The manifest: the frozen, self-contained sample that all later steps read.

Its files are ``manifest.json``, ``examples.parquet`` and ``documents.parquet``. ``manifest.json``
holds the header, the bins, and the SHA-256 of the other two files, of the sample and of itself.
Once they exist, the source may be deleted. In manifests of earlier versions the examples are inside
``manifest.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    SCHEMA_VERSION,
    Example,
    LengthBin,
    StoreError,
    conform,
)
from contextcliff_dagster.corpora.materialize import row_example
from contextcliff_dagster.freed_memory import lean_arrow, return_freed_memory
from contextcliff_dagster.store import read_table, write_atomic, write_table

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.arrays import Ints


@dataclass(frozen=True, slots=True)
class PlannedExample:
    """One example of the sample, with its bin and rank."""

    example: Example
    length_tokens: int
    bin: str
    rank: int


class SampleSource(Protocol):
    """A source of examples to ask about, and of their documents' texts, such as `Manifest`."""

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]: ...
    def document_text(self, document_id: str) -> str: ...


_ROWS_AT_ONCE = 10_000
_KEPT_ROWS = 100_000
"""Maximum number of examples cached as objects; the least recently used bins are dropped first."""


@dataclass(frozen=True)
class Manifest:
    """A frozen sample.

    ``examples``: table ``manifest_examples``, ordered by bin and rank. ``read_documents`` gives
    :attr:`documents`; for a manifest in the store it reads the file, and raises StoreError if it
    was replaced since. ``known_sha256``: :attr:`sha256` if already known. Equal content has the
    same :attr:`sha256`, which does not cover the creation time (``header["created_at"]``).
    """

    header: Mapping[str, Any]
    bins: Sequence[LengthBin]
    examples: pa.Table
    read_documents: Callable[[], pa.Table] = field(repr=False)
    known_sha256: str | None = None
    schema_version: str = SCHEMA_VERSION

    @cached_property
    def documents(self) -> pa.Table:
        """Table ``documents``, ordered by id; it has exactly the documents of the examples."""
        return self.read_documents()

    def forget_documents(self) -> None:
        """Free the texts from memory; they are read again when needed."""
        for name in ("documents", "_texts"):
            self.__dict__.pop(name, None)
        return_freed_memory()

    @property
    def content(self) -> dict[str, Any]:
        """Return the hashed content, except the examples, as plain values."""
        return {
            "schema_version": self.schema_version,
            "header": {k: v for k, v in self.header.items() if k != "created_at"},
            "bins": [asdict(b) for b in self.bins],
        }

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of :attr:`content` with the rows of ``examples``, as canonical JSON: sorted
        keys, no spaces, UTF-8. Texts are covered by their document ids."""
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
        fields = ",".join(f'"{name}":{content[name]}' for name in sorted(content))
        digest.update(f"],{fields}}}".encode())
        return digest.hexdigest()

    @cached_property
    def _rows(self) -> dict[str, Ints]:
        """Bin -> numbers of its rows, in the order drawn."""
        import numpy as np

        keys = self.examples["bin"].combine_chunks().dictionary_encode()
        codes = keys.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(keys.dictionary))
        ends = dict(zip(keys.dictionary.to_pylist(), np.cumsum(counts).tolist(), strict=True))
        sizes = dict(zip(ends, counts.tolist(), strict=True))
        last = {b.bin: ends.get(b.bin, 0) for b in self.bins}
        return {name: order[end - sizes.get(name, 0) : end] for name, end in last.items()}

    @cached_property
    def _made(self) -> OrderedDict[str, list[PlannedExample]]:
        """Bin -> its examples as objects; the most recently used bin comes last."""
        return OrderedDict()

    @cached_property
    def _texts(self) -> pa.ChunkedArray:
        return self.documents["text"]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.documents["document_id"].to_pylist())}

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """Return the first ``n`` examples of a bin in the order drawn, or all if it has fewer.

        Raises:
            StoreError: the manifest has no such bin.
        """
        if bin not in self._rows:
            raise StoreError(f"The manifest has no bin {bin!r}; it has {', '.join(self._rows)}.")
        rows = self._rows[bin][:n]
        examples = self._made.pop(bin, [])
        if len(examples) < len(rows):
            examples = list(self._examples_of(rows))
        self._made[bin] = examples
        while len(self._made) > 1 and sum(map(len, self._made.values())) > _KEPT_ROWS:
            self._made.popitem(last=False)
        return examples[:n]

    def _examples_of(self, rows: Ints) -> Iterator[PlannedExample]:
        for batch in self.examples.take(rows).to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield PlannedExample(
                    row_example(row), row["length_tokens"], row["bin"], row["rank"]
                )

    def document_text(self, document_id: str) -> str:
        """Return the text of one of the documents in the sample.

        Raises:
            StoreError: the sample has no such document.
        """
        if document_id not in self._position:
            raise StoreError(f"The manifest has no document {document_id[:12]!r}.")
        return str(self._texts[self._position[document_id]].as_py())


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces. Raises ValueError for NaN."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


HEAD, EXAMPLES_FILE, DOCUMENTS_FILE = "manifest.json", "examples.parquet", "documents.parquet"
_MOST_BYTES = 1 << 20
"""Size limit of a manifest file; larger ones come from earlier versions and are slow to read."""


def bins_of(head_file: Path) -> tuple[str, list[LengthBin]]:
    """Return specification hash and bins of a ``manifest.json``; empty if unreadable or large."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if head_file.stat().st_size <= _MOST_BYTES:
            head: dict[str, Any] = json.loads(head_file.read_bytes())
            return str(head["header"]["spec_hash"]), [LengthBin(**entry) for entry in head["bins"]]
    return "", []


MANIFEST_FILES = (HEAD, EXAMPLES_FILE, DOCUMENTS_FILE)
"""Files of a manifest; manifests of earlier versions lack `EXAMPLES_FILE`."""
_SAMPLE_KEYS = ("bins", "examples", "header", "schema_version")
"""Keys covered by the hash of a manifest from an earlier version."""


@lean_arrow()
def save_manifest(manifest: Manifest, directory: Path) -> None:
    """Write the manifest; leave the files untouched if the same manifest is already there.

    Raises:
        StoreError: the directory cannot be written.
    """
    with suppress(StoreError):  # missing or damaged: write it anew
        if stored_sha256(directory) == manifest.sha256:
            return
    write_table(directory / DOCUMENTS_FILE, manifest.documents, DOCUMENTS)
    write_table(directory / EXAMPLES_FILE, manifest.examples, MANIFEST_EXAMPLES)
    # The time of making is the file's modification time: the same sample has the same bytes.
    head = {
        **manifest.content,
        "sha256": manifest.sha256,
        "examples_sha256": _file_sha256(directory / EXAMPLES_FILE),
        "documents_sha256": _file_sha256(directory / DOCUMENTS_FILE),
    }
    content = {**head, "own_sha256": _hash(head)}
    text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False)
    write_atomic(directory / HEAD, (text + "\n").encode())


def load_manifest(directory: Path) -> Manifest:
    """Load the manifest in ``directory`` and verify its hashes; texts are read only when used.

    Raises:
        StoreError: it is missing or damaged.
    """
    with _damage_reported(directory):
        head = _proven_head(directory)
        created_at = datetime.fromtimestamp((directory / HEAD).stat().st_mtime, UTC)
        _require(directory, DOCUMENTS_FILE, head)
        return Manifest(
            header={**head["header"], "created_at": created_at.isoformat(timespec="seconds")},
            bins=tuple(LengthBin(**b) for b in head["bins"]),
            examples=_examples(directory, head),
            read_documents=partial(_read_documents, directory, head),
            known_sha256=head["sha256"],
            schema_version=head["schema_version"],
        )


def stored_sha256(directory: Path) -> str:
    """Return the `Manifest.sha256` of the manifest in ``directory``, verified and with errors like
    `load_manifest`, but without keeping examples or texts in memory."""
    with _damage_reported(directory):
        head = _proven_head(directory)
        for name in (DOCUMENTS_FILE, *(() if "examples" in head else (EXAMPLES_FILE,))):
            _require(directory, name, head)
        return str(head["sha256"])


_NAMES_DOCUMENTS = ("folder", "file", "python-source")
"""Kinds of corpus whose `source` is the document's name; others name the data set."""


def load_named_examples(directory: Path) -> pa.Table:
    """Load the examples with a column `document`, the document's name; errors are those of
    `load_manifest`. Its documents are not read."""
    import pyarrow as pa

    with _damage_reported(directory):
        head = _proven_head(directory)
        examples = _examples(directory, head)
        names = examples["source"].cast(pa.string())
        if head["header"]["corpus"]["name"] not in _NAMES_DOCUMENTS:
            names = pa.nulls(len(names), pa.string())
        return examples.append_column("document", names)


@lean_arrow()
def _examples(directory: Path, head: Mapping[str, Any]) -> pa.Table:
    if "examples" in head:
        return conform(head["examples"], MANIFEST_EXAMPLES)
    _require(directory, EXAMPLES_FILE, head)
    return read_table(directory / EXAMPLES_FILE, MANIFEST_EXAMPLES)


@lean_arrow()
def _read_documents(directory: Path, head: Mapping[str, Any]) -> pa.Table:
    with _damage_reported(directory):
        _require(directory, DOCUMENTS_FILE, head)
        return read_table(directory / DOCUMENTS_FILE, DOCUMENTS)


def _require(directory: Path, name: str, head: Mapping[str, Any]) -> None:
    if _file_sha256(directory / name) != head[f"{Path(name).stem}_sha256"]:
        raise ValueError(f"{name} does not match its SHA-256")


def _proven_head(directory: Path) -> dict[str, Any]:
    """Read ``manifest.json`` and verify its own hash."""
    path = directory / HEAD
    head: dict[str, Any] = json.loads(path.read_bytes())
    if head["schema_version"].split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise StoreError(
            f"{path} was written by another version (schema {head['schema_version']}); "
            "prepare the study again."
        )
    if "examples" in head:
        of, digest = {name: head[name] for name in _SAMPLE_KEYS}, head["sha256"]
        is_complete = head.keys() == {*_SAMPLE_KEYS, "sha256", "documents_sha256"}
    else:
        of, digest = {k: v for k, v in head.items() if k != "own_sha256"}, head["own_sha256"]
        is_complete = True
    if not is_complete or _hash(of) != digest:
        raise ValueError("its content does not match its SHA-256")
    return head


@contextmanager
def _damage_reported(directory: Path) -> Iterator[None]:
    """Turn errors from reading a missing or damaged manifest into a StoreError."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(
            f"There is no manifest in {directory} ({Path(error.filename).name} is missing); "
            "prepare the study first."
        ) from error
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        ArithmeticError,
    ) as error:
        raise StoreError(
            f"The manifest {directory / HEAD} is damaged ({error}); delete its folder and prepare "
            "the study again."
        ) from error


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
