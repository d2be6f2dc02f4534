"""The study's rows of the call ledger: taken out as tables, merged into another ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.container import Allowance, parquet_table
from contextcliff_dagster.archive.row_checks import result_checksum
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.schema import columns
from contextcliff_dagster.inference.ledger.statements import insert, keep_imported

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.inference.ledger.backend import Database
    from contextcliff_dagster.inference.ledger.ledger import Ledger

_LONGEST_ORIGIN = 400
_CALLS = "call_key IN (SELECT call_key FROM wanted)"
_MINE = "study = ? AND campaign IN (SELECT campaign FROM mine)"
_ATTEMPTS = f"{_CALLS} AND {_MINE}"
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
    "attempts": f"{_ATTEMPTS} ORDER BY attempt_id",
    "failures": f"attempt_id IN (SELECT attempt_id FROM attempts WHERE {_ATTEMPTS})"
    " ORDER BY attempt_id",
    "results": f"{_CALLS} AND coalesce(imported_for, ?) = ? ORDER BY call_key",
}


def read_calls(
    ledger: Ledger,
    study: str,
    campaign: str | None,
    documents: Iterable[str],
    asked: Iterable[str] = (),
) -> dict[str, pa.Table]:
    """The study's rows of every table, all of one moment, without the texts of ``documents``.

    Its calls are those that it made, and of ``asked`` (keys) those that another study of the same
    ledger made first: their answers are its own too, what they cost is not.

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
        _choose_calls(db, study, asked)
        tables = {name: _rows(db, name, where, study) for name, where in TABLES.items()}
    tables["calls"] = _under_own_name(tables["calls"], study, tables["campaign_models"])
    return tables


def _choose_calls(db: Database, study: str, asked: Iterable[str]) -> None:
    """Fill the table ``wanted`` with the keys of the study's calls."""
    db.execute("CREATE TEMP TABLE wanted (call_key TEXT PRIMARY KEY)")

    def add(where: str, value: str) -> None:
        sql = f"INSERT INTO wanted SELECT call_key FROM calls WHERE {where} ON CONFLICT DO NOTHING"
        db.execute(sql, (value,))

    for table in ("calls", "attempts"):
        add(f"call_key IN (SELECT call_key FROM {table} WHERE {_MINE})", study)
    for key in asked:
        add("call_key = ? AND campaign IN (SELECT campaign FROM mine)", key)
    # What a conversation's later calls rest on; the last of them names all earlier ones.
    rows = db.execute(f"SELECT parts FROM calls WHERE parts IS NOT NULL AND {_CALLS}").fetchall()
    for key in {key for (parts,) in rows for key in json.loads(parts).get("after", ())}:
        add("call_key = ?", key)


def _under_own_name(calls: pa.Table, study: str, models: pa.Table) -> pa.Table:
    """The calls as the study's, also those that the ledger notes under the study that paid them."""
    import pyarrow as pa

    names = {
        (row["campaign"], row["identity_hash"]): row["model"]
        for row in reversed(models.to_pylist())
    }
    rows = calls.to_pylist()
    for row in rows:
        if row["study"] != study:
            key = row["campaign"], row["identity_hash"]
            row |= {"study": study, "model": names.get(key, row["model"])}
    return pa.Table.from_pylist(rows, schema=calls.schema)


def arrow_schema(table: str) -> pa.Schema:
    """The columns of a ledger's table, as Arrow types."""
    import pyarrow as pa

    types = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    return pa.schema([(name, types[kind]) for name, kind in columns(table).items()])


def _rows(db: Database, table: str, where: str, study: str) -> pa.Table:
    import pyarrow as pa

    schema, source = arrow_schema(table), table
    names = ", ".join(schema.names)
    if table == "results":  # with imported ones; whose they are says `attempts`
        source = "answers"
        names = ", ".join("NULL" if one in ("owner", "study") else one for one in schema.names)
    rows = db.execute(
        f"SELECT {names} FROM {source} WHERE {where}", (study,) * where.count("?")
    ).fetchall()
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )


def read_tables(
    members: Mapping[str, bytes], allowance: Allowance, version: int
) -> dict[str, pa.Table]:
    """The ledger's tables of an archive, of the ledger's own columns: their names become SQL.

    ``version``: of the ledger that they come from; its columns have to be there.

    Raises:
        StoreError: naming the table and the column.
    """
    return {
        name: parquet_table(
            members[f"ledger/{name}.parquet"],
            name,
            arrow_schema(name),
            allowance,
            columns(name, version),
        )
        for name in TABLES
    }


def own_rows(tables: Mapping[str, pa.Table], study: str, name: str) -> dict[str, pa.Table]:
    """The tables without what another study paid, which archives of older versions may hold.

    The study's rows go under ``name``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    own = dict(tables)
    own["calls"] = _under_own_name(tables["calls"], study, tables["campaign_models"])
    own["attempts"] = tables["attempts"].filter(pc.field("study") == study)
    mine = pc.field("attempt_id").isin(own["attempts"].column("attempt_id").to_pylist())
    own["failures"] = tables["failures"].filter(mine)
    for one in ("campaigns", "campaign_models", "calls", "attempts"):
        table = own[one]
        names = pa.array([name] * table.num_rows, pa.string())
        own[one] = table.set_column(table.column_names.index("study"), "study", names)
    return own


def merge_calls(
    db: Database,
    tables: Mapping[str, pa.Table],
    texts: Mapping[str, str],
    file: Path,
    study: str,
    origin: str,
    *,
    adopt: bool,
) -> int:
    """Insert what is not there yet, in one transaction; the number of new answers.

    Args:
        study: reads the answers; no measurement does, unless ``adopt``.
        origin: of the answers, as it is told.

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
        insert(db, "documents", {"document_id": document_id, "bytes": len(body), "zstd": zstd})
    # A call that was begun here keeps its own history: the archive's attempts would count twice.
    begun = {row[0] for row in db.execute("SELECT DISTINCT call_key FROM attempts").fetchall()}
    for name in ("documents", "recipes", "identities", "campaigns", "campaign_models", "calls"):
        for row in tables[name].to_pylist():
            insert(db, name, row)
    numbers: dict[int, int] = {}
    for row in tables["attempts"].to_pylist():
        if row["call_key"] not in begun:
            old = row.pop("attempt_id")
            numbers[old] = _attempt(db, row)
    for row in tables["failures"].to_pylist():
        if row["attempt_id"] in numbers:
            insert(db, "failures", {**row, "attempt_id": numbers[row["attempt_id"]]})
    for row in (results := tables["results"].to_pylist()):
        if row.get("pruned_at") is None:  # an archive of an older version has no checksums
            row["checksum"] = result_checksum(row)
        before = "".join(filter(str.isprintable, row.pop("origin", None) or ""))
        row["origin"] = f"{origin} (there from {before[:_LONGEST_ORIGIN]})" if before else origin
    return sum(keep_imported(db, study, row, adopt=adopt) for row in results)


def _attempt(db: Database, row: Mapping[str, Any]) -> int:
    """Insert an attempt under a new number and add what it was charged to the campaign's spend."""
    marks = ", ".join("?" * len(row))
    number = db.execute(
        f"INSERT INTO attempts ({', '.join(row)}) VALUES ({marks}) RETURNING attempt_id",
        tuple(row.values()),
    ).fetchone()[0]
    kind = "reserved" if row["ended_at"] is None else "charged"
    db.execute(
        "INSERT INTO spend VALUES (?, ?, ?, ?, 1) ON CONFLICT (study, campaign) DO UPDATE SET"
        " usd = spend.usd + excluded.usd, tokens = spend.tokens + excluded.tokens,"
        " calls = spend.calls + 1",
        (row["study"], row["campaign"], row[f"{kind}_usd"] or 0.0, row[f"{kind}_tokens"] or 0),
    )
    return int(number)
