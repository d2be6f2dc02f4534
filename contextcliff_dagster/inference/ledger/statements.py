"""Changes to the ledger's tables; each function is one step in the writer's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.schema import checksum, columns, to_row
from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall, utc_now
from contextcliff_dagster.inference.spending import Budget, Spend

if TYPE_CHECKING:
    from contextcliff_dagster.inference.ledger.owners import Answer


_ALL_OF_A_CALL = ", ".join(
    f"{name} = excluded.{name}" for name in columns("calls") if name != "call_key"
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The campaign that pays for a call, and the serving identity that answers it."""

    study: str
    campaign: str
    model: str
    identity_hash: str


@dataclass(frozen=True, slots=True)
class Begun:
    """State of a call: ``send`` it as ``attempt_id``, ``finished``, or ``held`` by ``owner``."""

    state: Literal["send", "finished", "held"]
    attempt_id: int = 0
    owner: str = ""


def taken(db: Database, call_key: str, me: str) -> Begun | None:
    """Whether a call has an outcome or another owner; None where it may be sent."""
    if db.execute("SELECT 1 FROM results WHERE call_key = ?", (call_key,)).fetchone():
        return Begun("finished")
    row = db.execute("SELECT owner FROM claims WHERE call_key = ?", (call_key,)).fetchone()
    return Begun("held", owner=row[0]) if row and row[0] != me else None


def reserve(db: Database, scope: Scope, most: Spend, budget: Budget, now: str) -> None:
    """Add ``most`` to the campaign's and the day's spending. Raises BudgetError beyond a limit."""
    key = (scope.study, scope.campaign)
    row = db.execute(
        "SELECT usd, tokens, calls FROM spend WHERE study = ? AND campaign = ?", key
    ).fetchone()
    day = now[:10]
    today = db.execute("SELECT usd FROM spend_days WHERE day = ?", (day,)).fetchone()
    budget.check(Spend(*row) if row else Spend(), most, today[0] if today else 0.0)
    _add(db, key, most, day)


def _add(db: Database, key: tuple[str, str], spent: Spend, day: str) -> None:
    """Add an amount to the spending of a campaign (study and name) and of a day."""
    db.execute(
        "INSERT INTO spend VALUES (?, ?, ?, ?, ?) ON CONFLICT (study, campaign) DO UPDATE SET"
        " usd = spend.usd + excluded.usd, tokens = spend.tokens + excluded.tokens,"
        " calls = spend.calls + excluded.calls",
        (*key, spent.usd, spent.tokens, spent.calls),
    )
    db.execute(
        "INSERT INTO spend_days VALUES (?, ?)"
        " ON CONFLICT (day) DO UPDATE SET usd = spend_days.usd + excluded.usd",
        (day, spent.usd),
    )


def begin(db: Database, study: str, campaign: str, at: str | None = None) -> None:
    """Record that the campaign has begun, unless it already had."""
    db.execute(
        "INSERT INTO campaigns VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (study, campaign, at or utc_now()),
    )


def describe(
    db: Database, call: PlannedCall, prompt_hash: str, scope: Scope, zstd: bytes | None
) -> None:
    """Record campaign, document, recipe and call if they are missing.

    ``zstd``: the compressed document, or None if the ledger already has it.
    """
    example = call.example
    begin(db, scope.study, scope.campaign)
    if zstd is not None:
        row = (example.document_id, len(call.document.encode()), zstd)
        db.execute(
            "INSERT INTO documents (document_id, bytes, zstd) VALUES (?, ?, ?)"
            " ON CONFLICT (document_id) DO UPDATE SET zstd = excluded.zstd, pruned_at = NULL"
            " WHERE documents.pruned_at IS NOT NULL",
            row,
        )
    recipe = (call.recipe.hash, call.recipe.body)
    db.execute("INSERT INTO recipes VALUES (?, ?) ON CONFLICT DO NOTHING", recipe)
    db.execute(
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (call_key) DO"
        # A call answered only by an archive passes to the study that measures it.
        f" UPDATE SET {_ALL_OF_A_CALL} WHERE EXISTS (SELECT 1 FROM imported_results i"
        " WHERE i.call_key = calls.call_key AND i.study = calls.study)"
        " AND NOT EXISTS (SELECT 1 FROM results r WHERE r.call_key = calls.call_key)",
        (
            call.call_key,
            scope.study,
            scope.campaign,
            scope.model,
            scope.identity_hash,
            call.recipe.hash,
            example.example_id,
            example.document_id,
            example.question,
            call.replicate,
            prompt_hash,
            utc_now(),
            json.dumps(dict(call.parts), ensure_ascii=False) if call.parts else None,
        ),
    )


def attempt(
    db: Database, call_key: str, me: str, scope: Scope, most: Spend, estimated: int, now: str
) -> int:
    """Claim the call and record that it is about to be sent; return the attempt's number.

    ``estimated``: the prompt's tokens by our own count.
    """
    db.execute("INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (call_key, me, now))
    rows = db.execute(
        "INSERT INTO attempts (call_key, owner, study, campaign, model, started_at, reserved_usd,"
        " reserved_tokens, estimated_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " RETURNING attempt_id",
        (
            *(call_key, me, scope.study, scope.campaign, scope.model, now),
            *(most.usd, most.tokens, estimated),
        ),
    )
    return int(rows.fetchone()[0])


def restore_attempt(
    db: Database,
    call_key: str,
    scope: Scope,
    charge: Spend,
    finished_at: str,
    is_alive: Callable[[str], bool],
) -> None:
    """Record the request and charge of a lost outcome under their original dates.

    A request that the ledger still has is not counted twice. One that never ended ends here, unless
    ``is_alive`` returns that its owner is still running.
    """
    requests = db.execute(
        "SELECT attempt_id, owner, ended_at FROM attempts WHERE call_key = ? AND attempt_id NOT IN"
        " (SELECT attempt_id FROM failures WHERE call_key = ?) ORDER BY attempt_id DESC",
        (call_key, call_key),
    ).fetchall()
    if any(ended_at is not None for *_, ended_at in requests):
        return
    for attempt_id, owner, _ in requests:
        if not is_alive(owner):
            settle(db, attempt_id, charge, finished_at)
            return
    db.execute(
        "INSERT INTO attempts (call_key, owner, study, campaign, model, started_at, ended_at,"
        " reserved_usd, reserved_tokens, charged_usd, charged_tokens)"
        " VALUES (?, 'restored', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(call_key, scope.study, scope.campaign, scope.model, finished_at, finished_at),
            *(charge.usd, charge.tokens, charge.usd, charge.tokens),
        ),
    )
    _add(db, (scope.study, scope.campaign), charge, finished_at[:10])


def keep(
    db: Database, call_key: str, outcome: Outcome, owner: str | None, study: str | None
) -> None:
    """Store an outcome and its owner (None if unknown, from a table). The first outcome stays,
    because a call is never measured twice."""
    insert(db, "results", {**row_of(call_key, outcome), "owner": owner, "study": study})


def keep_imported(db: Database, study: str, answer: Mapping[str, Any], *, adopt: bool) -> bool:
    """Store an answer (call_key, origin and all) that was measured elsewhere, unless present.

    Only ``study`` reads it, and no measurement does; with ``adopt`` it counts as measured and keeps
    its origin. Returns whether it is new.
    """
    study_and_key = (study, answer["call_key"])
    sql = "SELECT 1 FROM results WHERE coalesce(study, ?) = ? AND call_key = ?"
    if db.execute(sql, (study, *study_and_key)).fetchone():
        return False
    if adopt:
        row = {**answer, "owner": None, "study": study}
        db.execute("DELETE FROM imported_results WHERE study = ? AND call_key = ?", study_and_key)
        return insert(db, "results", row)
    row = {**answer, "study": study}
    row.pop("owner", None)
    return insert(db, "imported_results", row)


def row_of(call_key: str, outcome: Outcome) -> dict[str, Any]:
    """Return a row of ``results`` with its checksum."""
    row = to_row(outcome)
    return {"call_key": call_key, **row, "checksum": checksum(call_key, row)}


def insert(db: Database, table: str, row: Mapping[str, Any]) -> bool:
    """Insert a row by its column names; return False if its key already exists."""
    marks = ", ".join("?" * len(row))
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
    return db.execute(sql, tuple(row.values())).rowcount > 0


def settle(db: Database, attempt_id: int, charge: Spend, at: str | None = None) -> str | None:
    """End an attempt (now) and replace its reservation with ``charge``.

    Returns its study, or None if it had already ended.
    """
    row = db.execute(
        "UPDATE attempts SET ended_at = ?, charged_usd = ?, charged_tokens = ?"
        " WHERE attempt_id = ? AND ended_at IS NULL"
        " RETURNING study, campaign, reserved_usd, reserved_tokens, started_at",
        (at or utc_now(), charge.usd, charge.tokens, attempt_id),
    ).fetchone()
    if row is None:
        return None
    study, campaign, usd, tokens, started_at = row
    db.execute(
        "UPDATE spend SET usd = usd + ?, tokens = tokens + ? WHERE study = ? AND campaign = ?",
        (charge.usd - usd, charge.tokens - tokens, study, campaign),
    )
    db.execute(
        "UPDATE spend_days SET usd = usd + ? WHERE day = ?", (charge.usd - usd, started_at[:10])
    )
    return str(study)


def fail(db: Database, attempt_id: int, call_key: str, failure: Failure) -> None:
    """Record why an attempt brought no answer."""
    db.execute(
        "INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            attempt_id,
            call_key,
            failure.kind,
            int(failure.maybe_paid),
            failure.status,
            int(failure.final),
            failure.message,
            utc_now(),
        ),
    )


def take_in(db: Database, owner: str, answer: Answer) -> bool:
    """Store a spooled answer if its attempt is still open; return False if that is unknown.

    An existing result stays, and the second answer is recorded as a paid duplicate.
    """
    row = db.execute(
        "SELECT ended_at FROM attempts WHERE attempt_id = ? AND call_key = ? AND owner = ?",
        (answer.attempt_id, answer.call_key, owner),
    ).fetchone()
    if row is None or row[0] is not None:  # ended: already stored
        return row is not None
    study = settle(db, answer.attempt_id, answer.charge, answer.outcome.finished_at)
    if taken(db, answer.call_key, owner) == Begun("finished"):
        reason = "another request was answered before this answer could be stored"
        fail(db, answer.attempt_id, answer.call_key, Failure("duplicate", reason, maybe_paid=True))
    else:
        keep(db, answer.call_key, answer.outcome, owner, study)
    release(db, answer.call_key, owner)
    return True


def release(db: Database, call_key: str, me: str) -> None:
    """Give up our claim on this call."""
    db.execute("DELETE FROM claims WHERE call_key = ? AND owner = ?", (call_key, me))


def release_all(db: Database, owner: str) -> None:
    """Give up all claims of ``owner``."""
    db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
