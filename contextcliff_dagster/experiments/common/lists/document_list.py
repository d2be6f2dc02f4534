"""The list of an experiment's documents: ``manifest.json`` in their folder, with its own hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.store import write_json

_NAME = "manifest.json"


class DocumentList(NamedTuple):
    """``sha256`` of the whole list; a row for each document; the others as written."""

    sha256: str
    made_by: str
    documents: list[dict[str, Any]]
    sources: dict[str, Any]


def write_list(
    folder: Path,
    made_by: str,
    documents: Sequence[Mapping[str, Any]],
    sources: Mapping[str, Any] | None = None,
) -> str:
    """Write the list of all documents, unless it is there; its own SHA-256.

    ``made_by``: hash of what decides the documents. ``sources``: what the documents were made of,
    where files decide them.

    Raises:
        StoreError: it cannot be written.
    """
    content: dict[str, Any] = {"made_by": made_by, "documents": list(documents)}
    if sources:
        content["sources"] = dict(sources)
    digest = _hash(content)
    known = read_list(folder, made_by)
    if known is None or known.sha256 != digest:
        write_json(folder / _NAME, {**content, "sha256": digest})
    return digest


def read_list(folder: Path, made_by: str | None = None) -> DocumentList | None:
    """Return the list; None where there is none, it is damaged, or another's than ``made_by``."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        whole = json.loads((folder / _NAME).read_bytes())
        digest = whole.pop("sha256")
        if made_by in (None, whole["made_by"]) and _hash(whole) == digest:
            sources = dict(whole.get("sources", {}))
            return DocumentList(digest, whole["made_by"], list(whole["documents"]), sources)
    return None


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
