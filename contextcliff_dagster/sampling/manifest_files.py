"""The manifest as files: ``manifest.json``, ``examples.parquet`` and ``documents.parquet``.

``manifest.json`` holds header, bins and the SHA-256 of the other two files, of the sample and of
itself. Once they exist the source may be deleted. In manifests of earlier versions the examples are
inside ``manifest.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
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
from contextcliff_dagster.freed_memory import lean_arrow
from contextcliff_dagster.sampling.manifest import Manifest, canonical_json
from contextcliff_dagster.store import read_table, write_atomic, write_table

if TYPE_CHECKING:
    import pyarrow as pa

HEAD, EXAMPLES_FILE, DOCUMENTS_FILE = "manifest.json", "examples.parquet", "documents.parquet"
MANIFEST_FILES = (HEAD, EXAMPLES_FILE, DOCUMENTS_FILE)
"""Of a manifest; those of earlier versions lack `EXAMPLES_FILE`."""
_SAMPLE_KEYS = ("bins", "examples", "header", "schema_version")
"""Of a manifest of an earlier version: what its hash is of."""


@lean_arrow()
def save_manifest(manifest: Manifest, directory: Path) -> None:
    """Write the manifest; nothing is touched where the same one is there already.

    Raises:
        StoreError: the directory cannot be written.
    """
    with suppress(StoreError):  # there is none yet, or it is damaged: write it anew
        if stored_sha256(directory) == manifest.sha256:
            return
    write_table(directory / DOCUMENTS_FILE, manifest.documents, DOCUMENTS)
    write_table(directory / EXAMPLES_FILE, manifest.examples, MANIFEST_EXAMPLES)
    # When it was made is the file's own time: the same sample has the same bytes.
    head = {
        **manifest.content,
        "sha256": manifest.sha256,
        "examples_sha256": _file_sha256(directory / EXAMPLES_FILE),
        "documents_sha256": _file_sha256(directory / DOCUMENTS_FILE),
    }
    whole = {**head, "own_sha256": _hash(head)}
    text = json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False)
    write_atomic(directory / HEAD, (text + "\n").encode())


def load_manifest(directory: Path) -> Manifest:
    """The manifest in ``directory``, its files as their hashes say; its texts are read when used.

    Raises:
        StoreError: there is none, or it is damaged.
    """
    with _intact(directory):
        head = _proven_head(directory)
        made = datetime.fromtimestamp((directory / HEAD).stat().st_mtime, UTC)
        _require(directory, DOCUMENTS_FILE, head)
        return Manifest(
            header={**head["header"], "created_at": made.isoformat(timespec="seconds")},
            bins=tuple(LengthBin(**b) for b in head["bins"]),
            examples=_examples(directory, head),
            read_documents=partial(_read_documents, directory, head),
            known_sha256=head["sha256"],
            schema_version=head["schema_version"],
        )


def stored_sha256(directory: Path) -> str:
    """`Manifest.sha256` of the one in ``directory``, proven as by `load_manifest`, whose errors it
    raises; no example and no text is kept."""
    with _intact(directory):
        head = _proven_head(directory)
        for name in (DOCUMENTS_FILE, *(() if "examples" in head else (EXAMPLES_FILE,))):
            _require(directory, name, head)
        return str(head["sha256"])


def load_examples(directory: Path) -> pa.Table:
    """The examples of the manifest in ``directory``, its documents unread; raises like
    `load_manifest`."""
    with _intact(directory):
        return _examples(directory, _proven_head(directory))


@lean_arrow()
def _examples(directory: Path, head: Mapping[str, Any]) -> pa.Table:
    if "examples" in head:
        return conform(head["examples"], MANIFEST_EXAMPLES)
    _require(directory, EXAMPLES_FILE, head)
    return read_table(directory / EXAMPLES_FILE, MANIFEST_EXAMPLES)


@lean_arrow()
def _read_documents(directory: Path, head: Mapping[str, Any]) -> pa.Table:
    with _intact(directory):
        _require(directory, DOCUMENTS_FILE, head)
        return read_table(directory / DOCUMENTS_FILE, DOCUMENTS)


def _require(directory: Path, name: str, head: Mapping[str, Any]) -> None:
    if _file_sha256(directory / name) != head[f"{Path(name).stem}_sha256"]:
        raise ValueError(f"{name} is not what its SHA-256 says")


def _proven_head(directory: Path) -> dict[str, Any]:
    """What ``manifest.json`` holds, proven against its own hash."""
    path = directory / HEAD
    head: dict[str, Any] = json.loads(path.read_bytes())
    if head["schema_version"].split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise StoreError(
            f"{path} was written by another version (schema {head['schema_version']}); "
            "prepare the study again."
        )
    if "examples" in head:
        of, digest = {name: head[name] for name in _SAMPLE_KEYS}, head["sha256"]
        sound = head.keys() == {*_SAMPLE_KEYS, "sha256", "documents_sha256"}
    else:
        of, digest = {k: v for k, v in head.items() if k != "own_sha256"}, head["own_sha256"]
        sound = True
    if not sound or _hash(of) != digest:
        raise ValueError("its content is not what its SHA-256 says")
    return head


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
            f"The manifest {directory / HEAD} is damaged ({error}); delete its folder and prepare "
            "the study again."
        ) from error


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
