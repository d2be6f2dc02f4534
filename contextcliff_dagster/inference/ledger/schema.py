"""The tables of the call ledger, their version, and outcomes as rows with checksums.

A new ledger is created by the steps that upgrade an old one, so the two never differ. A released
step is never edited: another step follows it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.requests.call_plan import Outcome
from contextcliff_dagster.inference.requests.recipe import stable_hash

COLUMNS = tuple(field.name for field in fields(Outcome))
"""Columns of an outcome; a row also has ``call_key``, ``checksum`` and ``pruned_at``."""
_EXTRA = COLUMNS.index("extra")
_AT_ONCE = 500
ANSWERED = "(coalesce(r.call_key, i.call_key) IS NOT NULL)"
"""SQL condition for `joined` having found an answer."""


def joined(calls: str = "c") -> str:
    """Return SQL that joins ``calls`` (or attempts) with answers: ``r`` measured here, ``i``
    imported for the study. Measuring reads only ``results``, which excludes archived answers."""
    return (
        f" LEFT JOIN results r ON r.call_key = {calls}.call_key LEFT JOIN imported_results i"
        f" ON i.call_key = {calls}.call_key AND i.study = {calls}.study AND"
        " (r.call_key IS NULL OR r.study <> i.study OR r.pruned_at IS NOT NULL)"
    )


def either(name: str) -> str:
    """Return SQL for the column ``name`` of the answer that `joined` has found."""
    return f"CASE WHEN i.call_key IS NULL THEN r.{name} ELSE i.{name} END"


def to_row(outcome: Outcome) -> dict[str, Any]:
    """Return column -> value, with ``extra``, if there is any, as JSON text."""
    row = {name: getattr(outcome, name) for name in COLUMNS}
    extra = row["extra"]
    row["extra"] = json.dumps(dict(extra), ensure_ascii=False, sort_keys=True) if extra else None
    return row


def from_row(values: Sequence[Any]) -> Outcome:
    """Return the outcome for values in the order of `COLUMNS`."""
    outcome = Outcome(*values)
    return replace(outcome, extra=json.loads(values[_EXTRA])) if values[_EXTRA] else outcome


def checksum(call_key: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of a call's key and its answer with all its fields.

    Empty columns are left out, so a column that a later version adds does not change older
    checksums. Numbers count as floating point, and -0.0 as 0.0, because a column may return 3.0 for
    3.
    """
    values = {
        name: float(value) + 0.0 if isinstance(value, int | float) else value
        for name, value in row.items()
        if value is not None and value == value  # SQLite keeps NaN as NULL
    }
    return stable_hash([call_key, values])


def computed_checksums(
    read: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
    names: Sequence[str] = COLUMNS,
    table: str = "results",
) -> Iterator[tuple[str, str | None, str]]:
    """Yield each answer's key, recorded checksum, and checksum of the columns ``names``.

    ``read`` returns the rows of a query; pruned answers are left out.
    """
    key = ("call_key", "study") if table == "imported_results" else ("call_key",)
    columns, marks = ", ".join(key), ", ".join("?" * len(key))
    last: Sequence[Any] = [""] * len(key)
    while rows := read(
        f"SELECT {columns}, checksum, {', '.join(names)} FROM {table}"
        f" WHERE ({columns}) > ({marks}) AND pruned_at IS NULL ORDER BY {columns} LIMIT ?",
        (*last, _AT_ONCE),
    ):
        for row in rows:
            last, (noted, *values) = row[: len(key)], row[len(key) :]
            yield last[0], noted, checksum(last[0], dict(zip(names, values, strict=True)))


_OF_AN_ANSWER = (
    "call_key, no_answer, raw_output, reasoning, finish_reason, prompt_tokens, cached_tokens,"
    " completion_tokens, own_prompt_tokens, ttft_ms, duration_ms, loop_lag_ms, attempts, cost_usd,"
    " error, finished_at, pruned_at, queue_ms, reasoning_tokens, extra, checksum"
)
_OF_A_CALL = (
    "call_key, campaign, model, identity_hash, recipe_hash, example_id, document_id, question,"
    " replicate, prompt_hash, created_at, parts"
)
_STEPS = {
    1: """
CREATE TABLE documents (          -- each text once, however many calls ask about it
    document_id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, zstd BLOB NOT NULL);
CREATE TABLE recipes (recipe_hash TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE identities (identity_hash TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE campaigns (
    study TEXT NOT NULL, campaign TEXT NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (study, campaign));
CREATE TABLE campaign_models (    -- which serving identity a name had in a campaign
    study TEXT NOT NULL, campaign TEXT NOT NULL, model TEXT NOT NULL,
    identity_hash TEXT NOT NULL REFERENCES identities, recorded_at TEXT NOT NULL,
    PRIMARY KEY (study, campaign, model)) WITHOUT ROWID;
CREATE TABLE calls (              -- enough to rebuild the prompt byte for byte
    call_key TEXT PRIMARY KEY, study TEXT NOT NULL, campaign TEXT NOT NULL, model TEXT NOT NULL,
    identity_hash TEXT NOT NULL, recipe_hash TEXT NOT NULL REFERENCES recipes,
    example_id TEXT NOT NULL, document_id TEXT NOT NULL REFERENCES documents,
    question TEXT NOT NULL, replicate INTEGER NOT NULL, prompt_hash TEXT NOT NULL,
    created_at TEXT NOT NULL);
CREATE TABLE attempts (           -- committed before the request is sent
    attempt_id INTEGER PRIMARY KEY, call_key TEXT NOT NULL REFERENCES calls, owner TEXT NOT NULL,
    study TEXT NOT NULL, campaign TEXT NOT NULL, model TEXT NOT NULL, started_at TEXT NOT NULL,
    ended_at TEXT, reserved_usd REAL NOT NULL, reserved_tokens INTEGER NOT NULL,
    charged_usd REAL, charged_tokens INTEGER);
CREATE INDEX attempts_open ON attempts (owner) WHERE ended_at IS NULL;
CREATE INDEX attempts_call ON attempts (call_key);
CREATE TABLE failures (           -- final: the run gave the call up; a later run tries again
    attempt_id INTEGER PRIMARY KEY REFERENCES attempts, call_key TEXT NOT NULL, kind TEXT NOT NULL,
    maybe_paid INTEGER NOT NULL, status INTEGER, final INTEGER NOT NULL, message TEXT NOT NULL,
    at TEXT NOT NULL);
CREATE INDEX failures_call ON failures (call_key);
CREATE TABLE results (            -- one per call, for good
    call_key TEXT PRIMARY KEY REFERENCES calls, no_answer TEXT, raw_output TEXT, reasoning TEXT,
    finish_reason TEXT, prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
    own_prompt_tokens INTEGER, ttft_ms REAL, duration_ms REAL, loop_lag_ms REAL,
    attempts INTEGER NOT NULL, cost_usd REAL, error TEXT, finished_at TEXT NOT NULL);
CREATE TABLE claims (
    call_key TEXT PRIMARY KEY, owner TEXT NOT NULL, claimed_at TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX claims_owner ON claims (owner);
CREATE TABLE spend (              -- running totals, kept with the attempts in the same transactions
    study TEXT NOT NULL, campaign TEXT NOT NULL,
    usd REAL NOT NULL, tokens INTEGER NOT NULL, calls INTEGER NOT NULL,
    PRIMARY KEY (study, campaign)) WITHOUT ROWID;
""",
    # What was pruned is known, so that it is never taken for an empty text.
    2: """
ALTER TABLE documents ADD COLUMN pruned_at TEXT;
ALTER TABLE results ADD COLUMN pruned_at TEXT;
CREATE INDEX calls_document ON calls (document_id);
CREATE INDEX calls_campaign ON calls (study, campaign);
""",
    3: """
ALTER TABLE results ADD COLUMN queue_ms REAL;
""",
    # Money by day over all studies: the day in UTC on which a request began.
    4: """
CREATE TABLE spend_days (day TEXT PRIMARY KEY, usd REAL NOT NULL) WITHOUT ROWID;
INSERT INTO spend_days SELECT substr(started_at, 1, 10), sum(coalesce(charged_usd, reserved_usd))
    FROM attempts GROUP BY substr(started_at, 1, 10);
""",
    5: """
ALTER TABLE results ADD COLUMN reasoning_tokens INTEGER;
""",
    # How a prompt was made where more than document and question went into it; what an engine
    # measured next to an answer; a checksum by which a changed answer is noticed; and each writer's
    # last batch, by which it knows after a lost connection whether that was committed.
    6: """
ALTER TABLE calls ADD COLUMN parts TEXT;
ALTER TABLE results ADD COLUMN extra TEXT;
ALTER TABLE results ADD COLUMN checksum TEXT;
CREATE TABLE batches (
    owner TEXT PRIMARY KEY, batch INTEGER NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
""",
    # Our own count of a prompt, which later estimates are corrected by; who measured an answer, or
    # which archive it was adopted from; the answers of archives, which no measurement reads; and
    # the ledger's own name, which stands in its stores.
    7: f"""
ALTER TABLE attempts ADD COLUMN estimated_tokens INTEGER;
ALTER TABLE results ADD COLUMN owner TEXT;
ALTER TABLE results ADD COLUMN study TEXT;
ALTER TABLE results ADD COLUMN origin TEXT;
CREATE TABLE imported_results (
    study TEXT NOT NULL, call_key TEXT NOT NULL REFERENCES calls, no_answer TEXT, raw_output TEXT,
    reasoning TEXT, finish_reason TEXT, prompt_tokens INTEGER, cached_tokens INTEGER,
    completion_tokens INTEGER, own_prompt_tokens INTEGER, ttft_ms REAL, duration_ms REAL,
    loop_lag_ms REAL, attempts INTEGER NOT NULL, cost_usd REAL, error TEXT,
    finished_at TEXT NOT NULL, pruned_at TEXT, queue_ms REAL, reasoning_tokens INTEGER, extra TEXT,
    checksum TEXT, origin TEXT NOT NULL, PRIMARY KEY (call_key, study)) WITHOUT ROWID;
CREATE VIEW answers AS            -- imported_for: the one study that an answer is for
    SELECT {_OF_AN_ANSWER}, owner, study, origin, CAST(NULL AS TEXT) AS imported_for FROM results
    UNION ALL
    SELECT {_OF_AN_ANSWER}, CAST(NULL AS TEXT), study, origin, study FROM imported_results i
    WHERE NOT EXISTS (SELECT 1 FROM results r WHERE r.call_key = i.call_key
        AND r.pruned_at IS NULL AND (r.study IS NULL OR r.study = i.study));
CREATE VIEW study_calls AS        -- a call of several studies under each that has imported it, too
    SELECT {_OF_A_CALL}, study FROM calls UNION ALL
    SELECT {_OF_A_CALL}, i.study FROM imported_results i JOIN calls c USING (call_key)
    WHERE i.study <> c.study;
CREATE TABLE ledgers (id TEXT PRIMARY KEY) WITHOUT ROWID;
""",
    # Calls that a provider answers together: `owner` claims them until the batch has ended, and
    # `holder` is the process that looks after it.
    8: """
CREATE TABLE call_batches (
    owner TEXT PRIMARY KEY, study TEXT NOT NULL, campaign TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, begun_at TEXT NOT NULL, file_id TEXT, remote_id TEXT,
    remote_status TEXT, ended_at TEXT, holder TEXT) WITHOUT ROWID;
""",
}
LEDGER_VERSION, CHECKSUMS_SINCE = max(_STEPS), 6


def steps(have: int, upto: int = LEDGER_VERSION) -> list[str]:
    """Return the statements that upgrade a ledger from version ``have`` to version ``upto``."""
    text = "".join(_STEPS[version] for version in range(have + 1, upto + 1))
    return [statement for statement in re.split(r";\s*\n", text) if statement.strip()]


def columns(table: str, version: int = LEDGER_VERSION) -> dict[str, str]:
    """Return column -> type (TEXT, INTEGER, REAL, BLOB) in the table's order, for any database."""
    return {name: kind for _, name, kind, *_ in _table_info(table, version)}


def primary_key(table: str) -> tuple[str, ...]:
    """Return the columns that together identify a row of the table."""
    return tuple(name for _, name, *_, part_of_key in _table_info(table) if part_of_key)


def required_columns(table: str) -> tuple[str, ...]:
    """Return the columns that have a value in every row, including the key's."""
    info = _table_info(table)
    return tuple(name for _, name, _, not_null, _, part_of_key in info if not_null or part_of_key)


@cache
def _table_info(table: str, version: int = LEDGER_VERSION) -> list[tuple[Any, ...]]:
    """Return each column's number, name, type, not-null flag, default and position in the key."""
    with sqlite3.connect(":memory:") as db:
        for statement in steps(0, version):
            db.execute(statement)
        info = db.execute(f"PRAGMA table_info({table})").fetchall()
    db.close()
    return info


@cache
def table_names() -> tuple[str, ...]:
    """Return the tables in order, each after the tables that it refers to."""
    return tuple(re.findall(r"CREATE TABLE (\w+)", "".join(steps(0))))


def require_version(version: int, where: object, *, older: bool = False) -> None:
    """
    Args:
        older: allow a ledger that can be upgraded.

    Raises:
        StoreError: the ledger has another version than this program writes.
    """
    if version > LEDGER_VERSION:
        raise StoreError(
            f"The call ledger {where} was written by a newer version of this program (ledger "
            f"version {version}, known here: {LEDGER_VERSION}) and is unchanged; upgrade this "
            "program, or set CONTEXTCLIFF_HOME to another folder."
        )
    if version < LEDGER_VERSION and not older:
        raise StoreError(
            f"The call ledger {where} was replaced by an older one (version {version}) while it "
            "was open; run the same command again."
        )


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file or upgrade older ones, all or nothing.

    Raises:
        StoreError: another program's database, or a ledger with a newer version.
    """
    db.execute("PRAGMA journal_mode=WAL")
    if _version(db) == LEDGER_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)  # another process may have been faster
        if not version and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(
                f"{path} is a database of another program; set CONTEXTCLIFF_HOME to another folder."
            )
        require_version(version, path, older=True)
        bring_up_to_date(db, version)
        db.execute(f"PRAGMA user_version={LEDGER_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def bring_up_to_date(db: Database, version: int) -> None:
    """Run the missing upgrade steps inside the open transaction."""
    for step in range(version + 1, LEDGER_VERSION + 1):
        for statement in steps(step - 1, step):
            db.execute(statement)
        if step == CHECKSUMS_SINCE:
            _add_checksums(db)


def _add_checksums(db: Database) -> None:
    """Add checksums to the results of older versions."""
    keys = ("call_key", "pruned_at", "checksum")
    names = [name for name in columns("results", CHECKSUMS_SINCE) if name not in keys]
    checksums = computed_checksums(lambda sql, values: db.execute(sql, values).fetchall(), names)
    for call_key, _, value in checksums:
        db.execute("UPDATE results SET checksum = ? WHERE call_key = ?", (value, call_key))


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
