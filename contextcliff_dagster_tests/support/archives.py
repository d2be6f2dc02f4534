"""Archives of a study that are changed as only their maker could: every hash fits again."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Members = dict[str, bytes]


def members_of(file: Path) -> Members:
    """Return name -> content of every member."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(members: Mapping[str, bytes], head: Mapping[str, Any] | None = None) -> Members:
    """Return ``members`` with a head that vouches for them; ``head`` changes further keys."""
    whole = json.loads(members["archive.json"]) | dict(head or {})
    whole["members"] = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in members.items()
        if name != "archive.json"
    }
    return {**members, "archive.json": json.dumps(whole).encode()}


def packed(members: Mapping[str, bytes], target: Path) -> Path:
    """Write ``members`` as a zip."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def with_table(
    members: Members, name: str, change: Callable[[pa.Table], pa.Table], *, plain: bool = False
) -> Members:
    """Return the archive with another table ``ledger/<name>.parquet``, sealed.

    ``plain``: without a note of its Arrow types: a dictionary is then plain text.
    """
    member = f"ledger/{name}.parquet"
    buffer = io.BytesIO()
    changed = change(pq.read_table(io.BytesIO(members[member])))
    pq.write_table(changed, buffer, compression="zstd", store_schema=not plain)
    return sealed({**members, member: buffer.getvalue()})


def with_cell(members: Members, name: str, column: str, value: Any) -> Members:
    """Return the archive with another ``value`` in the first row of a table, sealed."""

    def change(table: pa.Table) -> pa.Table:
        values = [value, *table.column(column).to_pylist()[1:]]
        index = table.column_names.index(column)
        return table.set_column(index, column, pa.array(values, table.schema.field(column).type))

    return with_table(members, name, change)


def with_manifest(members: Members, change: Callable[[dict[str, Any]], object]) -> Members:
    """Return the archive with another sample, sealed."""
    whole = json.loads(members["manifest/manifest.json"])
    documents = hashlib.sha256(members["manifest/documents.parquet"]).hexdigest()
    del whole["sha256"], whole["documents_sha256"]
    change(whole)
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    whole |= {"sha256": digest, "documents_sha256": documents}
    changed = {**members, "manifest/manifest.json": json.dumps(whole).encode()}
    return sealed(changed, {"manifest_sha256": digest})


def with_description(members: Members, change: Callable[[dict[str, Any]], object]) -> Members:
    """Return the archive with another definition of the study, sealed."""
    described = json.loads(members["study.json"])
    change(described)
    return sealed({**members, "study.json": json.dumps(described).encode()})
