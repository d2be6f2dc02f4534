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
    """Return the archive with another sample, sealed. ``change`` is given bins, header and
    examples."""
    head = json.loads(members["manifest/manifest.json"])
    schema = pq.read_schema(io.BytesIO(members["manifest/examples.parquet"]))
    rows = pq.read_table(io.BytesIO(members["manifest/examples.parquet"])).to_pylist()
    documents, _, _, _ = (
        head.pop(f"{name}sha256") for name in ("documents_", "examples_", "own_", "")
    )
    whole = {**head, "examples": rows}
    change(whole)
    digest = canonical_sha256(whole)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(whole.pop("examples", []), schema), buffer)
    examples = hashlib.sha256(buffer.getvalue()).hexdigest()
    whole |= {"sha256": digest, "examples_sha256": examples, "documents_sha256": documents}
    whole["own_sha256"] = canonical_sha256(whole)
    changed = {
        **members,
        "manifest/manifest.json": json.dumps(whole).encode(),
        "manifest/examples.parquet": buffer.getvalue(),
    }
    return sealed(changed, {"manifest_sha256": digest})


def as_before(members: Members) -> Members:
    """Return the archive as versions wrote it that kept the examples in manifest.json."""
    rest = {k: v for k, v in members.items() if k != "manifest/examples.parquet"}
    head = json.loads(members["manifest/manifest.json"])
    rows = pq.read_table(io.BytesIO(members["manifest/examples.parquet"])).to_pylist()
    whole = {k: v for k, v in head.items() if k not in ("examples_sha256", "own_sha256")}
    rest["manifest/manifest.json"] = json.dumps({**whole, "examples": rows}).encode()
    return sealed(rest, {"format_version": 1})


def canonical_sha256(value: Any) -> str:
    """Return the hash of JSON with sorted keys and no spaces."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def with_description(members: Members, change: Callable[[dict[str, Any]], object]) -> Members:
    """Return the archive with another definition of the study, sealed."""
    described = json.loads(members["study.json"])
    change(described)
    return sealed({**members, "study.json": json.dumps(described).encode()})


def without_origin(file: Path) -> Members:
    """Return the members, their answers as if nobody had brought them."""
    members = members_of(file)

    def blank(table: pa.Table) -> pa.Table:
        place = table.column_names.index("origin")
        return table.set_column(place, "origin", pa.nulls(table.num_rows, pa.string()))

    return with_table(members, "results", blank)
