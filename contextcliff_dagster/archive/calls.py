"""The study's rows of the call ledger: taken out as tables, merged into another ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.result_rows import COLUMNS, checksum
from contextcliff_dagster.inference.ledger.schema import columns

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.inference.ledger.backend import Database, Rows
    from contextcliff_dagster.inference.ledger.ledger import Ledger

# Calls of the study: made for it, or made for another study that asked the same serving identity
# the same thing (a call's key does not know its study).
_WANTED = """
CREATE TEMP TABLE wanted AS
SELECT DISTINCT c.call_key FROM calls c JOIN campaign_models m
  ON m.study = ? AND m.campaign = c.campaign AND m.identity_hash = c.identity_hash
WHERE c.campaign IN (SELECT campaign FROM mine)
  AND (c.study = ? OR c.document_id IN (SELECT document_id FROM manifest_documents))
"""
_CALLS = "call_key IN (SELECT call_key FROM wanted)"
_MINE = "study = ? AND campaign IN (SELECT campaign FROM mine)"
# In the order in which they can be inserted; each sorted, so that the same rows are the same bytes.
TABLES = {
    "documents": f"document_id IN (SELECT document_id FROM calls WHERE {_CALLS})"
    " AND document_id NOT IN (SELECT document_id FROM manifest_documents) ORDER BY document_id",
    "recipes": f"recipe_hash IN (SELECT recipe_hash FROM calls WHERE {_CALLS})"
    " ORDER BY recipe_hash",
    "identities": f"identity_hash IN (SELECT identity_hash FROM calls WHERE {_CALLS} UNION"
    f" SELECT identity_hash FROM campaign_models WHERE {_MINE}) ORDER BY identity_hash",
    "campaigns": f"{_MINE} ORDER BY created_at, campaign",
    "campaign_models": f"{_MINE} ORDER BY campaign, model",
    "calls": f"{_CALLS} ORDER BY call_key",
    "attempts": f"{_CALLS} ORDER BY attempt_id",
    "failures": f"{_CALLS} ORDER BY attempt_id",
    "results": f"{_CALLS} ORDER BY call_key",
}


def read_calls(
    ledger: Ledger, study: str, campaign: str | None, documents: Iterable[str]
) -> dict[str, pa.Table]:
    """The study's rows of every table, all of one moment, without the texts of ``documents``.

    Raises:
        StoreError: the ledger cannot be read.
    """
    with ledger.snapshot() as db:  # another process may be measuring
        db.execute("CREATE TEMP TABLE manifest_documents (document_id TEXT PRIMARY KEY)")
        for name in documents:
            db.execute("INSERT INTO manifest_documents VALUES (?)", (name,))
        one = (study,) if campaign is None else (study, campaign)
        db.execute(
            "CREATE TEMP TABLE mine AS SELECT campaign FROM campaigns WHERE study = ?"
            + (" AND campaign = ?" if campaign is not None else ""),
            one,
        )
        db.execute(_WANTED, (study, study))
        return {name: _rows(db, name, where, study) for name, where in TABLES.items()}


def arrow_schema(table: str) -> pa.Schema:
    """The columns of a ledger's table, as Arrow types."""
    import pyarrow as pa

    types = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    return pa.schema([(name, types[kind]) for name, kind in columns(table).items()])


def _rows(db: Database, table: str, where: str, study: str) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(table)
    rows = db.execute(
        f"SELECT {', '.join(schema.names)} FROM {table} WHERE {where}", (study,) * where.count("?")
    ).fetchall()
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )


def check_calls(tables: Mapping[str, pa.Table], file: Path) -> None:
    """Refuse columns that are not the ledger's own, since their names become SQL, and answers that
    are not what their checksums say.

    Raises:
        StoreError: naming the table and the column, or the call.
    """
    damaged = f"{file} is damaged or was tampered with"
    for name, table in tables.items():
        known, given = arrow_schema(name), table.schema
        types = dict(zip(known.names, known.types, strict=True))
        strange = [field.name for field in given if field.type != types.get(field.name)]
        # An archive of an older version has fewer columns, but those of the first.
        strange += sorted(set(columns(name, 1)) - set(given.names))
        if strange or len(set(given.names)) < len(given.names):
            column = strange[0] if strange else given.names[0]
            raise StoreError(
                f"{damaged}: column {column!r} of its table {name!r} is not as it should be; get a "
                "fresh copy."
            )
    for row in tables["results"].to_pylist():
        noted = row.get("checksum")
        if noted is not None and noted != _checksum(row):
            raise StoreError(
                f"{damaged}: the answer to call {str(row['call_key'])[:12]} is not what its "
                "checksum says; get a fresh copy."
            )


def _checksum(row: Mapping[str, Any]) -> str:
    return checksum(row["call_key"], {name: row.get(name) for name in COLUMNS})


def merge_calls(
    db: Database, tables: Mapping[str, pa.Table], texts: Mapping[str, str], file: Path
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
        zstd = codec.compress(body, asbytes=True)
        _insert(db, "documents", {"document_id": document_id, "bytes": len(body), "zstd": zstd})
    # A call that was begun here keeps its own history: the archive's attempts would count twice.
    begun = {row[0] for row in db.execute("SELECT DISTINCT call_key FROM attempts").fetchall()}
    for name in ("documents", "recipes", "identities", "campaigns", "campaign_models", "calls"):
        for row in tables[name].to_pylist():
            _insert(db, name, row)
    numbers: dict[int, int] = {}
    for row in tables["attempts"].to_pylist():
        if row["call_key"] not in begun:
            old = row.pop("attempt_id")
            numbers[old] = _attempt(db, row)
    for row in tables["failures"].to_pylist():
        if row["attempt_id"] in numbers:
            _insert(db, "failures", {**row, "attempt_id": numbers[row["attempt_id"]]})
    for row in (results := tables["results"].to_pylist()):
        if row.get("pruned_at") is None:  # an archive of an older version has no checksums
            row["checksum"] = _checksum(row)
    return sum(_insert(db, "results", row).rowcount for row in results)


def _insert(
    db: Database, table: str, row: Mapping[str, Any], tail: str = "ON CONFLICT DO NOTHING"
) -> Rows:
    # By name: an archive of an older version has fewer columns.
    marks = ", ".join("?" * len(row))
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks}) {tail}"
    return db.execute(sql, tuple(row.values()))


def _attempt(db: Database, row: Mapping[str, Any]) -> int:
    """Insert an attempt under a new number and add what it was charged to the campaign's spend."""
    number = _insert(db, "attempts", row, "RETURNING attempt_id").fetchone()[0]
    kind = "reserved" if row["ended_at"] is None else "charged"
    db.execute(
        "INSERT INTO spend VALUES (?, ?, ?, ?, 1) ON CONFLICT (study, campaign) DO UPDATE SET"
        " usd = spend.usd + excluded.usd, tokens = spend.tokens + excluded.tokens,"
        " calls = spend.calls + 1",
        (row["study"], row["campaign"], row[f"{kind}_usd"] or 0.0, row[f"{kind}_tokens"] or 0),
    )
    return int(number)
