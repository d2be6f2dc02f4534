"""The tables of the call ledger, and the version that says which they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from contextcliff_dagster.contracts import StoreError

LEDGER_VERSION = 1

_TABLES = """
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
"""


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file; otherwise check that they are of a version known here.

    Raises:
        StoreError: another program's database, or a ledger of a newer version.
    """
    db.execute("PRAGMA journal_mode=WAL")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == LEDGER_VERSION:
        return
    if version > LEDGER_VERSION:
        raise StoreError(
            f"The call ledger {path} was written by a newer version of this program (ledger "
            f"version {version}, "
            f"known here: {LEDGER_VERSION}); upgrade it, or set CONTEXTCLIFF_HOME to another "
            "folder."
        )
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreError(
            f"{path} is a database of another program; set CONTEXTCLIFF_HOME to another folder."
        )
    script = f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version={LEDGER_VERSION};COMMIT;"
    db.executescript(script)
