"""Batches in the ledger: an owner that is no process, and the one process that looks after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contextcliff_dagster.contracts import BudgetError, StoreError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.batches import (
    Answered,
    CallBatch,
    ToAsk,
    batches_of,
    begin_batch,
    give_up,
    hold,
    keep_answers,
    note,
    open_calls,
)
from contextcliff_dagster.inference.ledger.campaigns import ensure_campaign
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.prune import prune, rename_in_ledger
from contextcliff_dagster.inference.requests.call_plan import Failure
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster_tests.inference.ledger.test_ledger import CALLS, SCOPE, answer, begin

MOST = Spend(0.25, 100, 1)
ASKED = [ToAsk(call, call.prompt().hash, MOST, 90) for call in CALLS]
KEYS = [call.call_key for call in CALLS]


def begun(ledger: Ledger, budget: Budget | None = None) -> CallBatch:
    batch = begin_batch(ledger, ASKED, SCOPE, budget or Budget())
    assert batch is not None
    return batch


def next_process(ledger: Ledger) -> Ledger:
    where = getattr(ledger.backend, "path", None) or ledger.backend._url  # type: ignore[attr-defined]
    return Ledger.open(where)


def test_its_calls_are_its_own_until_each_has_an_answer(ledger: Ledger) -> None:
    batch = begun(ledger)
    assert batches_of(ledger, is_open=True, study="s", model="m") == [batch]
    assert set(ledger.claimed(KEYS).values()) == {batch.owner}
    assert begin(ledger, CALLS[0]).owner == batch.owner  # held, also from its own process
    assert begin_batch(ledger, ASKED, SCOPE, Budget()) is None
    assert ledger.spent("s", "c") == Spend(0.25 * len(CALLS), 100 * len(CALLS), len(CALLS))

    claimed = open_calls(ledger, batch)
    assert {key: most for key, (_, most) in claimed.items()} == dict.fromkeys(
        KEYS, Spend(0.25, 100)
    )
    first, *others = KEYS
    for _ in range(2):  # the same file read twice
        keep_answers(ledger, batch, claimed, [Answered(first, answer(), Spend(0.1, 50, 1))])
    assert ledger.outcomes([first])[first].raw_output == "a"
    assert list(open_calls(ledger, batch)) == others
    expired = (Failure("no_answer_in_batch", "expired"), Spend())
    give_up(ledger, batch, claimed, dict.fromkeys(others, expired), ends=True)
    assert ledger.claimed(KEYS) == {}
    assert ledger.spent("s", "c").usd == pytest.approx(0.1)
    assert batches_of(ledger, is_open=True) == []
    (ended,) = batches_of(ledger, is_open=False)
    assert ended.ended_at is not None
    assert begin(ledger, CALLS[1]).state == "send"


def test_a_study_with_an_open_batch_is_neither_pruned_nor_renamed(ledger: Ledger) -> None:
    batch = begun(ledger)
    ensure_campaign(ledger, "s", "c")
    for change in (lambda: prune(ledger, "s"), lambda: rename_in_ledger(ledger, "s", "t")):
        with pytest.raises(StoreError, match="or its batches"):
            change()
    claimed = open_calls(ledger, batch)
    never = (Failure("cancelled", "x"), Spend())
    give_up(ledger, batch, claimed, dict.fromkeys(claimed, never), ends=True)
    rename_in_ledger(ledger, "s", "t")
    assert [one.owner for one in batches_of(ledger, study="t")] == [batch.owner]
    prune(ledger, "t")
    assert not batches_of(ledger)


def test_it_outlives_the_process_that_began_it(ledger: Ledger) -> None:
    batch = begun(ledger)
    with next_process(ledger) as other:
        assert not hold(other, batch)  # the first one lives
        ledger.close()
        assert other.backend.is_alive(batch.owner)
        assert not other.release_dead(batch.owner)
        assert other.orphans() == []
        assert hold(other, batch)
        note(other, batch, remote_id="batch_1", remote_status="in_progress")
        (known,) = batches_of(other, is_open=True)
        assert (known.remote_id, known.remote_status) == ("batch_1", "in_progress")
        with next_process(other) as third:
            assert not hold(third, batch)
        give_up(other, batch, open_calls(other, batch), {}, ends=True)
        assert not other.backend.is_alive(batch.owner)
        assert not hold(other, batch)


def test_the_budget_bounds_what_it_claims(ledger: Ledger) -> None:
    batch = begun(ledger, Budget(usd=0.8))
    assert batch.requests == len(open_calls(ledger, batch)) == 3
    assert ledger.spent("s", "c").usd == pytest.approx(0.75)
    with pytest.raises(BudgetError):
        begin_batch(ledger, ASKED, SCOPE, Budget(usd=0.8))
    assert len(batches_of(ledger)) == 1


def test_a_transaction_that_is_repeated_keeps_the_documents(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ledger.write

    def twice(operation: Callable[[Database], Any]) -> Any:
        def repeated(db: Database) -> Any:
            db.execute("SAVEPOINT first_try")
            operation(db)
            db.execute("ROLLBACK TO SAVEPOINT first_try")
            return operation(db)

        return write(repeated)

    monkeypatch.setattr(ledger, "write", twice)
    begun(ledger)
    stored = {name for (name,) in ledger.read("SELECT document_id FROM documents")}
    assert stored == {call.example.document_id for call in CALLS}
