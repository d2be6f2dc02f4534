"""Documents that an experiment has made of files which an archive does not hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive import container
from contextcliff_dagster.archive.container import json_object, malformed

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.archive.container import Allowance

KEPT_MEMBERS = ("documents/lists.json", "documents/documents.parquet")
"""In archives of studies whose experiments cannot make their documents again from the study."""


@dataclass(frozen=True, slots=True)
class KeptList:
    """The documents of an experiment.

    Attributes:
        made_by: hash of what decides them.
        sources: what they were made of, JSON-ready.
        rows: a mapping a document, with ``document_id`` and ``text``; JSON-ready.
    """

    made_by: str
    sources: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def pack(lists: Mapping[str, KeptList]) -> dict[str, bytes]:
    """Return the members of an archive that hold ``lists``, by experiment; none without any."""
    import pyarrow as pa

    if not lists:
        return {}
    heads = {
        name: {"made_by": one.made_by, "sources": dict(one.sources)} for name, one in lists.items()
    }
    rows = [
        {
            "experiment": name,
            "values": json.dumps({k: v for k, v in row.items() if k != "text"}, sort_keys=True),
            "text": row["text"],
        }
        for name, one in lists.items()
        for row in one.rows
    ]
    table = pa.Table.from_pylist(rows, schema=_schema())
    return dict(
        zip(
            KEPT_MEMBERS, (container.json_bytes(heads), container.parquet_bytes(table)), strict=True
        )
    )


def unpack(members: Mapping[str, bytes], allowance: Allowance) -> dict[str, KeptList]:
    """Return the lists by experiment; each text is the one that its id says.

    Raises:
        StoreError: they are not as `pack` makes them.
    """
    heads_name, table_name = KEPT_MEMBERS
    if heads_name not in members:
        return {}
    file = allowance.file
    table = container.parquet_table(members[table_name], table_name, _schema(), allowance)
    with malformed(file, heads_name):
        heads = json_object(members[heads_name])
        lists = {
            name: KeptList(_text(head["made_by"]), dict(head["sources"]), [])
            for name, head in heads.items()
        }
    with malformed(file, table_name):
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in lists}
        for row in table.to_pylist():
            rows[row["experiment"]].append({**json_object(row["values"]), "text": row["text"]})
        for row in (row for of in rows.values() for row in of):
            if hashlib.sha256(_text(row["text"]).encode()).hexdigest() != row["document_id"]:
                raise ValueError("document_id")
    return {name: KeptList(one.made_by, one.sources, rows[name]) for name, one in lists.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in ("experiment", "values", "text")])
