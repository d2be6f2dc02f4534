"""The study's rows of the call ledger: taken out as tables, merged into another ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

# Calls of the study: made for it, or made for another study that asked the same serving identity
# the same thing (a call's key does not know its study).
_WANTED = """
CREATE TEMP TABLE wanted AS
SELECT DISTINCT c.call_key FROM calls c JOIN campaign_models m
  ON m.study = :study AND m.campaign = c.campaign AND m.identity_hash = c.identity_hash
WHERE (:campaign IS NULL OR c.campaign = :campaign)
  AND (c.study = :study OR c.document_id IN (SELECT document_id FROM manifest_documents))
"""
_CALLS = "call_key IN (SELECT call_key FROM wanted)"
_MINE = "study = :study AND (:campaign IS NULL OR campaign = :campaign)"
# In the order in which they can be inserted; each sorted, so that the same rows are the same bytes.
TABLES = {
    "documents": f"document_id IN (SELECT document_id FROM calls WHERE {_CALLS})"
    " AND document_id NOT IN (SELECT document_id FROM manifest_documents) ORDER BY document_id",
    "recipes": f"recipe_hash IN (SELECT recipe_hash FROM calls WHERE {_CALLS})"
    " ORDER BY recipe_hash",
    "identities": f"identity_hash IN (SELECT identity_hash FROM calls WHERE {_CALLS} UNION"
    f" SELECT identity_hash FROM campaign_models WHERE {_MINE}) ORDER BY identity_hash",
    "campaigns": f"{_MINE} ORDER BY rowid",
    "campaign_models": f"{_MINE} ORDER BY campaign, model",
    "calls": f"{_CALLS} ORDER BY call_key",
    "attempts": f"{_CALLS} ORDER BY attempt_id",
    "failures": f"{_CALLS} ORDER BY attempt_id",
    "results": f"{_CALLS} ORDER BY call_key",
}


def read_calls(
    path: Path, study: str, campaign: str | None, documents: Iterable[str]
) -> dict[str, pa.Table]:
    """The study's rows of every table, all of one moment, without the texts of ``documents``.

    Raises:
        StoreError: the ledger cannot be read.
    """
    from contextcliff_dagster.inference.ledger_schema import prepare
    from contextcliff_dagster.inference.sqlite_writer import connect, store_error

    try:
        with closing(connect(path)) as db:
            prepare(db, path)
            db.execute("CREATE TEMP TABLE manifest_documents (document_id TEXT PRIMARY KEY)")
            db.executemany(
                "INSERT INTO manifest_documents VALUES (?)",
                ((name,) for name in documents),
            )
            db.execute("BEGIN")  # one snapshot: another process may be measuring
            given = {"study": study, "campaign": campaign}
            db.execute(_WANTED, given)
            tables = {name: _rows(db, name, where, given) for name, where in TABLES.items()}
            db.execute("ROLLBACK")
            return tables
    except sqlite3.Error as fault:
        raise store_error(fault, path) from fault


def _rows(db: sqlite3.Connection, table: str, where: str, given: Mapping[str, Any]) -> pa.Table:
    import pyarrow as pa

    types = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    schema = pa.schema(
        [(row[1], types[row[2]]) for row in db.execute(f"PRAGMA table_info({table})")]
    )
    rows = db.execute(
        f"SELECT {', '.join(schema.names)} FROM {table} WHERE {where}", given
    ).fetchall()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def merge_calls(
    db: sqlite3.Connection, tables: Mapping[str, pa.Table], texts: Mapping[str, str], file: Path
) -> int:
    """Insert what is not there yet, in one transaction; the number of new answers.

    Raises:
        StoreError: a model of the same campaign has another serving identity here.
    """
    import pyarrow as pa

    for row in tables["campaign_models"].to_pylist():
        key = (row["study"], row["campaign"], row["model"])
        there = db.execute(
            "SELECT identity_hash FROM campaign_models"
            " WHERE study = ? AND campaign = ? AND model = ?",
            key,
        ).fetchone()
        if there and there[0] != row["identity_hash"]:
            raise StoreError(
                f"{file}: model {key[2]!r} of campaign {key[1]} of study {key[0]!r} is another one "
                "here; import it into a store of its own with --store DIR."
            )
    codec = pa.Codec("zstd")
    needed = set(tables["calls"].column("document_id").to_pylist())
    for document_id in sorted(needed & set(texts)):
        body = texts[document_id].encode()
        _insert(db, "documents", (document_id, len(body), codec.compress(body, asbytes=True)))
    # A call that was begun here keeps its own history: the archive's attempts would count twice.
    begun = {key for (key,) in db.execute("SELECT DISTINCT call_key FROM attempts")}
    for name in ("documents", "recipes", "identities", "campaigns", "campaign_models", "calls"):
        for row in tables[name].to_pylist():
            _insert(db, name, tuple(row.values()))
    numbers: dict[int, int] = {}
    for row in tables["attempts"].to_pylist():
        if row["call_key"] not in begun:
            old = row.pop("attempt_id")
            numbers[old] = _attempt(db, row)
    for row in tables["failures"].to_pylist():
        if row["attempt_id"] in numbers:
            _insert(db, "failures", (numbers[row.pop("attempt_id")], *row.values()))
    return sum(_insert(db, "results", tuple(row.values())) for row in tables["results"].to_pylist())


def _insert(db: sqlite3.Connection, table: str, values: tuple[Any, ...]) -> int:
    marks = ", ".join("?" * len(values))
    return db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values).rowcount


def _attempt(db: sqlite3.Connection, row: Mapping[str, Any]) -> int:
    """Insert an attempt under a new number and add what it was charged to the campaign's spend."""
    cursor = db.execute(
        f"INSERT INTO attempts ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
        tuple(row.values()),
    )
    settled = row["ended_at"] is not None
    usd = row["charged_usd"] if settled else row["reserved_usd"]
    tokens = row["charged_tokens"] if settled else row["reserved_tokens"]
    db.execute(
        "INSERT INTO spend VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE SET"
        " usd = usd + excluded.usd, tokens = tokens + excluded.tokens, calls = calls + 1",
        (row["study"], row["campaign"], usd or 0.0, tokens or 0),
    )
    return int(cursor.lastrowid or 0)
