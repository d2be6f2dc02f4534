"""Batches of calls in the ledger: what a provider was asked to answer together.

A batch is an owner (`owners`) that is no process. It claims its calls, and reserves their cost,
before anything is uploaded; it gives each up with its answer, or with the reason why there is none.
Its id is in the batch's metadata at the provider, so that it is found again where the process that
created it died before it heard of it. One process at a time looks after a batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.inference.ledger import statements
from contextcliff_dagster.inference.ledger.backend import BATCH, OPEN_BATCH, Database
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.ledger.queries import LedgerReader
from contextcliff_dagster.inference.requests.call_plan import Failure, Outcome, PlannedCall, utc_now
from contextcliff_dagster.inference.spending import Budget, Spend

_COLUMNS = (
    "owner, study, campaign, model, requests, begun_at, file_id, remote_id, remote_status, ended_at"
)


REFUSED = "refused"
"""Status of a batch none of whose calls the provider began."""


@dataclass(frozen=True, slots=True)
class CallBatch:
    """A batch: ``owner`` is its id here, ``remote_id`` that of the provider, if it is known."""

    owner: str
    study: str
    campaign: str
    model: str
    requests: int
    begun_at: str
    file_id: str | None = None
    remote_id: str | None = None
    remote_status: str | None = None
    ended_at: str | None = None

    @property
    def name(self) -> str:
        """The provider's id, if it is known, else ours."""
        return self.remote_id or self.owner


@dataclass(frozen=True, slots=True)
class ToAsk:
    """A call for a batch, the most it may cost, and the prompt's tokens by our own count."""

    call: PlannedCall
    prompt_hash: str
    reserve: Spend
    estimated_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome and charge of a call of a batch."""

    call_key: str
    outcome: Outcome
    charge: Spend


def batches_of(
    ledger: LedgerReader, *, is_open: bool | None = None, **of: str | None
) -> list[CallBatch]:
    """Return batches, oldest first; ``of``: study, campaign, model, if given."""
    given = {name: value for name, value in of.items() if value is not None}
    conditions = [f"{name} = ?" for name in given]
    if is_open is not None:
        conditions.append(f"ended_at IS {'' if is_open else 'NOT '}NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = f"SELECT {_COLUMNS} FROM call_batches{where} ORDER BY begun_at, owner"
    return [CallBatch(*row) for row in ledger.read(sql, tuple(given.values()))]


def begin_batch(
    ledger: Ledger, asked: Sequence[ToAsk], scope: Scope, budget: Budget
) -> CallBatch | None:
    """Claim calls for a new batch that this process holds, as many as the budget allows.

    Calls that have an outcome or an owner are left out; None if no call remains.

    Raises:
        BudgetError: not even the first one is within the budget.
        StoreError: the ledger cannot be written.
    """
    owner, me, now = f"{BATCH}{uuid.uuid4().hex}", ledger.backend.owner, utc_now()

    def operation(db: Database) -> int:
        free = [item for item in asked if statements.taken(db, item.call.call_key, owner) is None]
        texts = {item.call.example.document_id: item.call for item in free}
        number = 0
        for item in free:
            try:
                statements.reserve(db, scope, item.reserve, budget, now)
            except BudgetError:
                if not number:
                    raise
                break
            key = item.call.call_key
            new = texts.pop(item.call.example.document_id, None)
            zstd = ledger.compressed(new) if new else None
            statements.describe(db, item.call, item.prompt_hash, scope, zstd)
            statements.attempt(db, key, owner, scope, item.reserve, item.estimated_tokens, now)
            number += 1
        if number:
            of = (owner, scope.study, scope.campaign, scope.model, number, now, me)
            db.execute(
                "INSERT INTO call_batches (owner, study, campaign, model, requests, begun_at,"
                " holder) VALUES (?, ?, ?, ?, ?, ?, ?)",
                of,
            )
        return number

    number = ledger.write(operation)
    if not number:
        return None
    return CallBatch(owner, scope.study, scope.campaign, scope.model, number, now)


def hold(ledger: Ledger, batch: CallBatch) -> bool:
    """Take over the batch, unless another process that lives looks after it; return whether."""
    me = ledger.backend.owner

    def operation(db: Database) -> bool:
        sql = "SELECT holder FROM call_batches WHERE owner = ? AND ended_at IS NULL"
        row = db.execute(sql, (batch.owner,)).fetchone()
        if row is None or (row[0] not in (None, me) and ledger.backend.has_open(row[0])):
            return False
        db.execute("UPDATE call_batches SET holder = ? WHERE owner = ?", (me, batch.owner))
        return True

    return ledger.write(operation)


def note(ledger: Ledger, batch: CallBatch, **values: str | None) -> None:
    """Record what became known of the batch, by column: file_id, remote_id, remote_status."""
    names = ", ".join(f"{name} = ?" for name in values)
    parameters = (*values.values(), batch.owner)
    ledger.write(
        lambda db: db.execute(f"UPDATE call_batches SET {names} WHERE owner = ?", parameters)
    )


def open_calls(ledger: LedgerReader, batch: CallBatch) -> dict[str, tuple[int, Spend]]:
    """Return call key -> attempt and reservation of the calls that the batch still claims."""
    rows = ledger.read(
        "SELECT call_key, attempt_id, reserved_usd, reserved_tokens FROM attempts"
        " WHERE owner = ? AND ended_at IS NULL ORDER BY attempt_id",
        (batch.owner,),
    )
    return {key: (attempt_id, Spend(usd, tokens)) for key, attempt_id, usd, tokens in rows}


def to_ask_again(ledger: LedgerReader, scope: Scope, most: int) -> set[str]:
    """Return the calls that batches of the model in the campaign were asked, fewer than ``most``
    times without the refused ones; not those of a cancelled one."""
    rows = ledger.read(
        "SELECT a.call_key FROM attempts a JOIN call_batches b USING (owner)"
        " WHERE b.study = ? AND b.campaign = ? AND b.model = ? GROUP BY a.call_key HAVING"
        " count(*) FILTER (WHERE coalesce(b.remote_status, '') <> ?) < ?"
        " AND count(*) FILTER (WHERE b.remote_status = 'cancelled') = 0",
        (scope.study, scope.campaign, scope.model, REFUSED, most),
    )
    return {key for (key,) in rows}


Claimed = Mapping[str, tuple[int, Spend]]
"""What `open_calls` returns."""


def keep_answers(
    ledger: Ledger, batch: CallBatch, claimed: Claimed, answered: Iterable[Answered]
) -> None:
    """Store answers of the batch in one transaction; those stored before are left as they are."""
    kept = list(answered)

    def operation(db: Database) -> None:
        for item in kept:
            if statements.settle(db, claimed[item.call_key][0], item.charge) is not None:
                statements.keep(db, item.call_key, item.outcome, batch.owner, batch.study)
                statements.release(db, item.call_key, batch.owner)

    ledger.write(operation)


def give_up(
    ledger: Ledger,
    batch: CallBatch,
    claimed: Claimed,
    why: Mapping[str, tuple[Failure, Spend]],
    *,
    ends: bool,
) -> None:
    """Record why calls of the batch have no answer, with their charge, and set them free.

    ``ends``: whether the batch is over.
    """

    def operation(db: Database) -> None:
        for key, (failure, charge) in why.items():
            statements.fail(db, claimed[key][0], key, failure)
            statements.settle(db, claimed[key][0], charge)
            statements.release(db, key, batch.owner)
        if ends and db.execute(OPEN_BATCH, (batch.owner,)).fetchone():
            sql = "UPDATE call_batches SET ended_at = ?, holder = NULL WHERE owner = ?"
            db.execute(sql, (utc_now(), batch.owner))

    ledger.write(operation)
