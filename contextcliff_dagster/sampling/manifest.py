"""The manifest: the frozen, self-contained sample that everything downstream reads.

Two files: ``manifest.json`` (header, bins, examples and the SHA-256 of these) and
``documents.parquet`` (the texts). Once they exist the source may be deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    SCHEMA_VERSION,
    LengthBin,
    StoreError,
    conform,
)
from contextcliff_dagster.corpora.materialize import row_example
from contextcliff_dagster.freed_memory import lean_arrow, return_freed_memory
from contextcliff_dagster.sampling.sample_source import PlannedExample
from contextcliff_dagster.store import read_table, write_atomic, write_table

if TYPE_CHECKING:
    import pyarrow as pa


_FILE = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """A frozen sample.

    ``examples``: table ``manifest_examples``, ordered by bin and rank. ``read_documents`` gives
    :attr:`documents`; of a manifest in the store it reads the file, and raises StoreError where
    that is another one by now. The same content has the same :attr:`sha256`; when it was made
    (``header["created_at"]``) is not part of it.
    """

    header: Mapping[str, Any]
    bins: Sequence[LengthBin]
    examples: pa.Table
    read_documents: Callable[[], pa.Table] = field(repr=False)

    @cached_property
    def documents(self) -> pa.Table:
        """Table ``documents``, ordered by id: exactly the texts that the examples ask about."""
        return self.read_documents()

    def forget_documents(self) -> None:
        """Let go of the texts; where they are wanted again, they are read again."""
        self.__dict__.pop("documents", None)
        return_freed_memory()

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything under the hash, as plain values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "header": {k: v for k, v in self.header.items() if k != "created_at"},
            "bins": [asdict(b) for b in self.bins],
            "examples": self.examples.to_pylist(),
        }

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the content as canonical JSON; texts enter by their document ids."""
        return _hash(self.content)

    @cached_property
    def _by_bin(self) -> dict[str, list[PlannedExample]]:
        planned: dict[str, list[PlannedExample]] = {b.bin: [] for b in self.bins}
        for row in self.examples.to_pylist():
            planned[row["bin"]].append(
                PlannedExample(row_example(row), row["length_tokens"], row["bin"], row["rank"])
            )
        return planned

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.documents["document_id"].to_pylist())}

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """The first ``n`` examples of a bin, in draw order; all it has where it has fewer.

        Raises:
            StoreError: the manifest has no such bin.
        """
        if bin not in self._by_bin:
            raise StoreError(f"The manifest has no bin {bin!r}; it has {', '.join(self._by_bin)}.")
        return self._by_bin[bin][:n]

    def document_text(self, document_id: str) -> str:
        """The text of one of the sample's documents.

        Raises:
            StoreError: it is not among them.
        """
        if document_id not in self._position:
            raise StoreError(f"The manifest has no document {document_id[:12]!r}.")
        return str(self.documents["text"][self._position[document_id]].as_py())


@lean_arrow()
def save_manifest(manifest: Manifest, directory: Path) -> None:
    """Write the manifest; nothing is touched where the same one is there already.

    Raises:
        StoreError: the directory cannot be written.
    """
    path = directory / _FILE
    documents = directory / "documents.parquet"
    with suppress(StoreError):  # there is none yet, or it is damaged: write it anew
        if stored_sha256(directory) == manifest.sha256:
            return
    write_table(documents, manifest.documents, DOCUMENTS)
    with documents.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # When it was made is the file's own time: the same sample has the same bytes.
    whole = {**manifest.content, "sha256": manifest.sha256, "documents_sha256": digest}
    text = json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False)
    write_atomic(path, (text + "\n").encode())


def load_manifest(directory: Path) -> Manifest:
    """The manifest in ``directory``, proven against its own hashes; its texts are read when used.

    Raises:
        StoreError: there is none, or it is damaged.
    """
    with _intact(directory):
        whole = _content(directory)
        made = datetime.fromtimestamp((directory / _FILE).stat().st_mtime, UTC)
        _require_documents(directory, whole)
        return Manifest(
            header={**whole["header"], "created_at": made.isoformat(timespec="seconds")},
            bins=tuple(LengthBin(**b) for b in whole["bins"]),
            examples=conform(whole["examples"], MANIFEST_EXAMPLES),
            read_documents=partial(_read_documents, directory, whole),
        )


def stored_sha256(directory: Path) -> str:
    """`Manifest.sha256` of the one in ``directory``, proven as by `load_manifest`, whose errors it
    raises; no text is kept."""
    with _intact(directory):
        whole = _content(directory)
        _require_documents(directory, whole)
        return _hash({name: of for name, of in whole.items() if name != "documents_sha256"})


@lean_arrow()
def _read_documents(directory: Path, content: Mapping[str, Any]) -> pa.Table:
    with _intact(directory):
        _require_documents(directory, content)
        return read_table(directory / "documents.parquet", DOCUMENTS)


def _require_documents(directory: Path, content: Mapping[str, Any]) -> None:
    with (directory / "documents.parquet").open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != content["documents_sha256"]:
            raise ValueError("documents.parquet is not what its SHA-256 says")


def load_examples(directory: Path) -> pa.Table:
    """The examples of the manifest in ``directory``, its documents unread; raises like
    `load_manifest`."""
    with _intact(directory):
        return conform(_content(directory)["examples"], MANIFEST_EXAMPLES)


def _content(directory: Path) -> dict[str, Any]:
    """What ``manifest.json`` holds, proven against its own hash."""
    path = directory / _FILE
    whole: dict[str, Any] = json.loads(path.read_bytes())
    digest, of_documents = whole.pop("sha256"), whole.pop("documents_sha256")
    if whole["schema_version"].split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise StoreError(
            f"{path} was written by another version (schema {whole['schema_version']}); "
            "prepare the study again."
        )
    if _hash(whole) != digest:
        raise ValueError("its content is not what its SHA-256 says")
    return {**whole, "documents_sha256": of_documents}


@contextmanager
def _intact(directory: Path) -> Iterator[None]:
    """Turn what reading a missing or damaged manifest raises into a sentence."""
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
            f"The manifest {directory / _FILE} is damaged ({error}); delete its folder and prepare "
            "the study again."
        ) from error


def _hash(content: Mapping[str, Any]) -> str:
    text = json.dumps(
        content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()
