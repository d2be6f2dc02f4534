"""A study's rows of the call ledger: exported as tables, checked, and merged into a ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from contextcliff_dagster.archive.container import Allowance, damaged, json_object, parquet_table
from contextcliff_dagster.contracts import ContextCliffError, Example, StoreError
from contextcliff_dagster.inference.engines.base import MOST_TOKENS
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.schema import (
    CHECKSUMS_SINCE,
    COLUMNS,
    checksum,
    columns,
    primary_key,
    required_columns,
)
from contextcliff_dagster.inference.ledger.statements import insert, keep_imported
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.requests.call_plan import call_key
from contextcliff_dagster.inference.requests.recipe import Recipe

_LONGEST_ORIGIN = 400
_CALLS = "call_key IN (SELECT call_key FROM wanted)"
_STUDY_ROWS = "study = ? AND campaign IN (SELECT campaign FROM mine)"
_ATTEMPTS = f"{_CALLS} AND {_STUDY_ROWS}"
# In insertion order. Each query is sorted, so that the same rows give the same bytes.
TABLES = {
    "documents": f"document_id IN (SELECT document_id FROM calls WHERE {_CALLS})"
    " AND document_id NOT IN (SELECT document_id FROM manifest_documents) ORDER BY document_id",
    "recipes": f"recipe_hash IN (SELECT recipe_hash FROM calls WHERE {_CALLS})"
    " ORDER BY recipe_hash",
    "identities": f"identity_hash IN (SELECT identity_hash FROM calls WHERE {_CALLS} UNION"
    f" SELECT identity_hash FROM campaign_models WHERE {_STUDY_ROWS}) ORDER BY identity_hash",
    "campaigns": f"{_STUDY_ROWS} ORDER BY created_at, campaign",
    "campaign_models": f"{_STUDY_ROWS} ORDER BY campaign, model",
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
    """Return the study's rows of every table in one snapshot, without the texts of ``documents``.

    They include the study's own calls and those of ``asked`` (keys) that another study of the same
    ledger made first: this study shares their answers but not their cost.

    Raises:
        StoreError: the ledger cannot be read.
    """
    with ledger.snapshot() as db:  # another process may be measuring
        db.execute("CREATE TEMP TABLE manifest_documents (document_id TEXT PRIMARY KEY)")
        for name in documents:
            db.execute("INSERT INTO manifest_documents VALUES (?)", (name,))
        scope = (study,) if campaign is None else (study, campaign)
        db.execute(
            "CREATE TEMP TABLE mine AS SELECT campaign FROM campaigns WHERE study = ?"
            + (" AND campaign = ?" if campaign is not None else ""),
            scope,
        )
        _choose_calls(db, study, asked)
        tables = {name: _rows(db, name, where, study) for name, where in TABLES.items()}
    tables["calls"] = _under_own_name(tables["calls"], study, tables["campaign_models"])
    return tables


def _choose_calls(db: Database, study: str, asked: Iterable[str]) -> None:
    """Create the temporary table ``wanted`` with the keys of the study's calls."""
    db.execute("CREATE TEMP TABLE wanted (call_key TEXT PRIMARY KEY)")

    def add(where: str, value: str) -> None:
        sql = f"INSERT INTO wanted SELECT call_key FROM calls WHERE {where} ON CONFLICT DO NOTHING"
        db.execute(sql, (value,))

    for table in ("calls", "attempts"):
        add(f"call_key IN (SELECT call_key FROM {table} WHERE {_STUDY_ROWS})", study)
    for key in asked:
        add("call_key = ? AND campaign IN (SELECT campaign FROM mine)", key)
    # Earlier calls of conversations; the last call names all earlier ones.
    rows = db.execute(f"SELECT parts FROM calls WHERE parts IS NOT NULL AND {_CALLS}").fetchall()
    for key in {key for (parts,) in rows for key in json.loads(parts).get("after", ())}:
        add("call_key = ?", key)


def _under_own_name(calls: pa.Table, study: str, models: pa.Table) -> pa.Table:
    """Return ``calls`` under this study's name, even if another study paid for them."""
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
    types = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    return pa.schema([(name, types[kind]) for name, kind in columns(table).items()])


def _rows(db: Database, table: str, where: str, study: str) -> pa.Table:
    schema, source = arrow_schema(table), table
    names = ", ".join(schema.names)
    if table == "results":  # includes imported results; `attempts` names their owners
        source = "answers"
        names = ", ".join("NULL" if name in ("owner", "study") else name for name in schema.names)
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
    """Read the ledger tables of an archive; only known columns pass, because names become SQL.

    ``version``: version of the ledger they come from; its columns are required.

    Raises:
        StoreError: a table or column is not as it should be; names both.
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
    """Return the tables under the study name ``name``, without rows that another study paid for
    (in archives of older versions)."""
    own_tables = dict(tables)
    own_tables["calls"] = _under_own_name(tables["calls"], study, tables["campaign_models"])
    own_tables["attempts"] = tables["attempts"].filter(pc.field("study") == study)
    is_own = pc.field("attempt_id").isin(own_tables["attempts"].column("attempt_id").to_pylist())
    own_tables["failures"] = tables["failures"].filter(is_own)
    for table_name in ("campaigns", "campaign_models", "calls", "attempts"):
        table = own_tables[table_name]
        names = pa.array([name] * table.num_rows, pa.string())
        own_tables[table_name] = table.set_column(table.column_names.index("study"), "study", names)
    return own_tables


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
    """Insert missing rows, in one transaction; return the number of new answers.

    Args:
        study: the study whose reports use the answers; with ``adopt``, measurements use them too.
        origin: where the answers come from, in words.

    Raises:
        StoreError: a model of the same campaign has another serving identity here.
    """
    for row in tables["campaign_models"].to_pylist():
        key = (row["study"], row["campaign"], row["model"])
        identity = db.execute(
            "SELECT identity_hash FROM campaign_models"
            " WHERE study = ? AND campaign = ? AND model = ?",
            key,
        ).fetchone()
        if identity and identity[0] != row["identity_hash"]:
            raise StoreError(
                f"{file}: model {key[2]!r} of study {key[0]!r}, campaign {key[1]}, is another one "
                "here; import it into a separate store with --store DIR."
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
    """Insert an attempt and add its charge to the campaign's spend; return its new number."""
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


MOST_USD, MOST_NUMBER = 1e9, 4 * MOST_TOKENS
"""Largest charge (USD), and largest other number: tokens, requests, bytes or ms."""
_MOST = {
    **dict.fromkeys(("reserved_usd", "charged_usd", "cost_usd"), MOST_USD),
    **dict.fromkeys(("replicate", "attempt_id"), 2**62),
    **dict.fromkeys(("maybe_paid", "final"), 1),
}
_NO_ANSWER = (None, "context_overflow", "invalid_truncated", "content_filter")

Tables = Mapping[str, pa.Table]


def check_rows(
    tables: Tables, head: Mapping[str, Any], documents: Mapping[str, str], allowance: Allowance
) -> None:
    """Reject rows that no ledger would have written.

    Args:
        tables: the ledger's tables, with columns already checked.
        head: the archive's head, which names its study and campaigns.
        documents: document id -> text, for the archive's sample.

    Raises:
        StoreError: a row is not valid; names the table and its fault.
    """
    file = allowance.file
    for name, table in tables.items():
        _check_table(file, name, table)
    rows = {name: table.to_pylist() for name, table in tables.items()}
    study, campaigns = head["study"], {row["campaign"] for row in rows["campaigns"]}
    if campaigns != set(head["campaigns"]):
        raise damaged(file, "its campaigns are not those named in its head")
    recipes = {row["recipe_hash"]: _recipe(file, row) for row in rows["recipes"]}
    for row in rows["identities"]:
        identity = Identity(_json(file, "identities", row["body"]))
        _require(file, "identities", identity.hash == row["identity_hash"])
    described = {row["document_id"]: _check_document(row, allowance) for row in rows["documents"]}
    texts = {**documents, **described}
    valid_values = {
        "call_key": {row["call_key"] for row in rows["calls"]},
        "attempt_id": {row["attempt_id"] for row in rows["attempts"]},
        "document_id": {row["document_id"] for row in rows["documents"]} | set(documents),
        "recipe_hash": recipes.keys(),
        "identity_hash": {row["identity_hash"] for row in rows["identities"]},
        "campaign": campaigns,
    }
    for name in rows:
        for column, values in valid_values.items():
            if column in tables[name].column_names:
                strange = set(tables[name].column(column).to_pylist()) - values
                _require(file, name, not strange, f"a {column} that it does not describe")
    for name in ("campaigns", "campaign_models"):
        _require(file, name, {row["study"] for row in rows[name]} <= {study}, "another study")
    results = {row["call_key"]: row for row in rows["results"]}
    signed = head["versions"]["ledger"] >= CHECKSUMS_SINCE
    for row in results.values():
        _check_result(file, row, signed=signed)
    for row in rows["calls"]:
        before = _check_call(file, row, recipes[row["recipe_hash"]], results.get(row["call_key"]))
        valid = row["call_key"] not in before and all(k in valid_values["call_key"] for k in before)
        _require(file, "calls", valid, "a call after one that it does not describe")
        text, question = texts[row["document_id"]], row["question"]
        if text is not None and question and not before:
            prompt = recipes[row["recipe_hash"]].render(text, question, row["replicate"])
            _require(file, "calls", prompt.hash == row["prompt_hash"], "a prompt of another text")


def _check_table(file: Path, name: str, table: pa.Table) -> None:
    """Raise StoreError for a table with invalid keys, missing values, amounts or times."""
    refuse = partial(_require, file, name)
    for column in required_columns(name):
        if column in table.column_names:  # an archive of an older version has fewer
            refuse(not table.column(column).null_count, f"an empty {column}")
    key = list(zip(*(table.column(part).to_pylist() for part in primary_key(name)), strict=True))
    refuse(len(set(key)) == len(key), "a row twice")
    for column, values in zip(table.column_names, table.columns, strict=True):
        if values.type == pa.float64():
            refuse(
                pc.all(pc.is_finite(values)).as_py() is not False, f"a {column} that is not finite"
            )
        if values.type in (pa.int64(), pa.float64()) and values.null_count < len(values):
            low, high = pc.min_max(values).as_py().values()
            limit = _MOST.get(column, MOST_NUMBER)
            refuse(low >= 0 and high <= limit, f"{column!r} out of all bounds")
        if column in ("campaign", "model"):  # they become names of files and lines on a terminal
            names = filter(None, pc.unique(values).to_pylist())
            refuse(all(n.isprintable() and len(n) <= 200 for n in names), f"a strange {column}")
        if column.endswith("_at") or column == "at":
            for text in pc.unique(values).to_pylist():
                refuse(text is None or _is_time(text), f"a {column} that is not a time")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _check_document(row: Mapping[str, Any], allowance: Allowance) -> str | None:
    if row.get("pruned_at") is not None:
        return None
    allowance.take(row["bytes"])
    try:
        text = pa.Codec("zstd").decompress(row["zstd"], row["bytes"], asbytes=True)
        matches, decoded = hashlib.sha256(text).hexdigest() == row["document_id"], text.decode()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(allowance.file, "a document of its table 'documents' is not whole") from error
    _require(allowance.file, "documents", matches, "a text that does not match its id")
    return str(decoded)


def _recipe(file: Path, row: Mapping[str, Any]) -> Recipe:
    body = _json(file, "recipes", row["body"])
    try:
        recipe = Recipe.from_dict(body)
        matches = recipe.hash == row["recipe_hash"]
    except (ContextCliffError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise damaged(file, "its table 'recipes' has a row that is not a recipe") from error
    _require(file, "recipes", matches)
    return recipe


def _check_call(
    file: Path, row: Mapping[str, Any], recipe: Recipe, result: Mapping[str, Any] | None
) -> Collection[str]:
    """Refuse a call under another question's key; return the keys of the calls before it."""
    _require(file, "calls", row["replicate"] < recipe.replicates, "an unknown replicate")
    parts = _json(file, "calls", row["parts"]) if row.get("parts") is not None else None
    after: list[str] = (parts or {}).get("after", [])
    listed = isinstance(after, list) and all(isinstance(key, str) for key in after)
    _require(file, "calls", listed, "an 'after' that is not a list of calls")
    if after:  # its key is made of answers in the words of the experiment
        return after
    example = Example(row["example_id"], row["document_id"], row["question"], (), "")
    key = call_key(row["identity_hash"], recipe, example, row["replicate"], row["campaign"], parts)
    pruned = not row["question"] and (result is None or result.get("pruned_at") is not None)
    _require(file, "calls", key == row["call_key"] or pruned, "a call under another's key")
    return ()


def _check_result(file: Path, row: Mapping[str, Any], *, signed: bool) -> None:
    noted = row.get("checksum")
    optional = not signed or row.get("pruned_at") is not None
    _require(file, "results", noted is not None or optional, "an answer without a checksum")
    if noted is not None and noted != result_checksum(row):
        raise StoreError(
            f"{file} is damaged or was tampered with: the answer to call "
            f"{row['call_key'][:12]!r} does not match its checksum; get a fresh copy."
        )
    _require(file, "results", row["no_answer"] in _NO_ANSWER, "an unknown no_answer")
    if row.get("extra") is not None:
        _json(file, "results", row["extra"])


def result_checksum(row: Mapping[str, Any]) -> str:
    """Return the checksum of an answer as stored in the archive."""
    return checksum(row["call_key"], {name: row.get(name) for name in COLUMNS})


def _json(file: Path, table: str, text: str) -> dict[str, Any]:
    try:
        return json_object(text)
    except ValueError as error:
        raise damaged(file, f"its table {table!r} holds malformed JSON ({error})") from error


def _require(
    file: Path, table: str, holds: bool, what: str = "something under another's hash"
) -> None:
    if not holds:
        raise damaged(file, f"its table {table!r} holds {what}")
