"""The ledger: budgets that hold, claims that end with their process, errors in one sentence."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import BudgetError, StoreError
from contextcliff_dagster.inference.ledger.ledger import Begun, Ledger, Scope
from contextcliff_dagster.inference.ledger.owners import Owner, is_alive
from contextcliff_dagster.inference.requests.call_plan import (
    Failure,
    Outcome,
    PlannedCall,
    plan_calls,
    utc_now,
)
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample

SAMPLE = LedgerSample(2, 4)
SCOPE = Scope("s", "c", "m", "identity")
CALLS = plan_calls(SAMPLE, "identity", RECIPE, "c", SAMPLE.bins, 4)


def begin(
    ledger: Ledger,
    call: PlannedCall,
    usd: float = 0.0,
    budget: Budget | None = None,
    scope: Scope = SCOPE,
) -> Begun:
    return ledger.begin(call, call.prompt(), scope, Spend(usd, 10, 1), budget or Budget()).result()


def source(where: Path | DatabaseUrl) -> str:
    """Python that gives ``where`` in another process, which has imported this module."""
    if isinstance(where, Path):
        return f"Path({str(where)!r})"
    return f"DatabaseUrl({where.secret!r})"


def answer(text: str = "a") -> Outcome:
    return Outcome(raw_output=text, attempts=1, finished_at=utc_now())


def test_a_call_goes_from_claim_to_outcome_and_is_never_sent_again(ledger: Ledger) -> None:
    begun = begin(ledger, CALLS[0])
    assert begun.state == "send"
    ledger.finish(begun.attempt_id, CALLS[0].call_key, answer(), Spend()).result()
    assert begin(ledger, CALLS[0]).state == "finished"
    assert ledger.outcomes([CALLS[0].call_key])[CALLS[0].call_key].raw_output == "a"


def test_the_first_outcome_stands(ledger: Ledger) -> None:
    begun = begin(ledger, CALLS[0])
    for text in ("first", "second"):
        ledger.finish(begun.attempt_id, CALLS[0].call_key, answer(text), Spend()).result()
    assert ledger.outcomes([CALLS[0].call_key])[CALLS[0].call_key].raw_output == "first"


def test_a_call_is_held_by_one_owner_until_it_lets_go(
    ledger: Ledger, ledger_at: Path | DatabaseUrl
) -> None:
    with Ledger.open(ledger_at) as other:
        begun = begin(ledger, CALLS[0])
        held = begin(other, CALLS[0])
        assert held.state == "held"
        assert not other.release_dead(held.owner)
        ledger.fail(
            begun.attempt_id, CALLS[0].call_key, Failure("drop", "gone"), Spend(), release=True
        ).result()
        assert begin(other, CALLS[0]).state == "send"


def test_the_claims_of_a_dead_process_are_free_and_its_attempts_are_orphans(
    ledger: Ledger, ledger_at: Path | DatabaseUrl
) -> None:
    code = (
        "import os; from contextcliff_dagster_tests.inference.ledger.test_ledger import *;"
        f"ledger = Ledger.open({source(ledger_at)});"
        "begin(ledger, CALLS[0], usd=0.25); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    held = begin(ledger, CALLS[0])
    assert held.state == "held"
    # PostgreSQL's server misses the connection of a process a moment after its death.
    wait_until(lambda: ledger.release_dead(held.owner))
    assert begin(ledger, CALLS[0]).state == "send"
    assert [orphan.reserved_usd for orphan in ledger.orphans("s", "c")] == [0.25]
    assert ledger.spent("s", "c").usd == 0.25
    assert ledger.stats()["orphans"] == 1


def test_a_forked_child_does_not_keep_a_dead_owner_alive(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:  # pragma: no cover (runs in the child)
        os.read(reader, 1)
        os._exit(0)
    assert is_alive(tmp_path, owner.id)
    owner.close()
    assert not is_alive(tmp_path, owner.id)
    os.write(writer, b"x")
    os.waitpid(child, 0)


def test_the_budget_holds_before_the_call_and_counts_what_is_reserved(
    sqlite_ledger: Ledger,
) -> None:
    budget = Budget(usd=1.0)
    for call in CALLS[:2]:
        assert begin(sqlite_ledger, call, 0.5, budget).state == "send"
    with pytest.raises(BudgetError, match=r"\$1.0000 has no room"):
        begin(sqlite_ledger, CALLS[2], 0.01, budget)
    assert sqlite_ledger.stats()["attempts"] == 2


def test_what_was_reserved_and_not_used_can_be_spent(sqlite_ledger: Ledger) -> None:
    budget = Budget(usd=1.0)
    for call in CALLS:
        begun = begin(sqlite_ledger, call, 0.9, budget)
        sqlite_ledger.finish(begun.attempt_id, call.call_key, answer(), Spend(0.01, 5, 1)).result()
    assert sqlite_ledger.spent("s", "c").usd == pytest.approx(0.08)
    assert sqlite_ledger.spent("s", "c") == Spend(pytest.approx(0.08), 40, 8)


def test_calls_and_tokens_can_be_limited_too(sqlite_ledger: Ledger) -> None:
    begin(sqlite_ledger, CALLS[0])
    with pytest.raises(BudgetError, match="1 calls"):
        begin(sqlite_ledger, CALLS[1], 0, Budget(calls=1))
    with pytest.raises(BudgetError, match="15 tokens"):
        begin(sqlite_ledger, CALLS[1], 0, Budget(tokens=15))


@given(
    limit=st.floats(0.1, 3),
    prices=st.lists(
        st.tuples(st.floats(0.01, 0.5), st.floats(0, 1), st.booleans()), min_size=8, max_size=8
    ),
)
def test_several_writers_never_spend_more_than_the_budget(
    ledger_at: Path | DatabaseUrl, limit: float, prices: list[tuple[float, float, bool]]
) -> None:
    # Each example spends in a campaign of its own, on calls of its own.
    scope = replace(SCOPE, campaign=uuid.uuid4().hex)
    calls = plan_calls(SAMPLE, "identity", RECIPE, scope.campaign, SAMPLE.bins, 4)
    with Ledger.open(ledger_at) as one, Ledger.open(ledger_at) as two:

        def work(ledger: Ledger, share: list[int]) -> None:
            for index in share:
                reserve, used, dies = prices[index]
                try:
                    begun = begin(ledger, calls[index], reserve, Budget(usd=limit), scope)
                except BudgetError:
                    continue
                if not dies:
                    charge = Spend(reserve * used, 1, 1)
                    ledger.finish(
                        begun.attempt_id, calls[index].call_key, answer(), charge
                    ).result()

        threads = [
            threading.Thread(target=work, args=(one, [0, 2, 4, 6])),
            threading.Thread(target=work, args=(two, [1, 3, 5, 7])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.spent("s", scope.campaign).usd <= limit * (1 + 1e-9)


def test_prompts_are_rebuilt_byte_for_byte_and_documents_stored_once(ledger: Ledger) -> None:
    sample = LedgerSample(1, 3, questions=4)
    calls = plan_calls(sample, "identity", RECIPE, "c", sample.bins, 100)
    assert len(calls) == 12
    for call in calls:
        begin(ledger, call)
        assert ledger.prompt(call.call_key) == call.prompt()
    assert ledger.stats()["documents"] == 3
    with pytest.raises(StoreError, match="has no call"):
        ledger.prompt("nonsense")


def test_a_file_that_is_no_ledger_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(StoreError, match="damaged or not a ledger"):
        Ledger.open(tmp_path / "junk.db")
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="another program"):
        Ledger.open(tmp_path / "other.db")


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        Ledger.open(tmp_path / "file" / "state.db")
    if Path("/proc/self").exists():
        with pytest.raises(StoreError, match="check the"):
            Ledger.open(Path("/proc/self/nowhere/state.db"))


def test_on_a_full_disk_answers_already_paid_are_still_kept(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "state.db") as ledger:
        ledger.backend.patience_s = 0.0
        begun = begin(ledger, CALLS[0])
        pages = ledger.write(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        # SQLite's own limit gives the error of a full disk; lifting it does what the reserve does.
        ledger.backend._writer.execute(f"PRAGMA max_page_count={pages}")
        reserve = tmp_path / "state.db.reserve"
        assert reserve.stat().st_size > 1 << 20
        big = answer("x" * 100_000)
        with pytest.raises(StoreError, match=r"disk is full.*[Ff]inished answers are kept"):
            ledger.finish(begun.attempt_id, CALLS[0].call_key, big, Spend()).result()
        assert not reserve.exists()
        ledger.backend._writer.execute("PRAGMA max_page_count=1000000")
        ledger.finish(begun.attempt_id, CALLS[0].call_key, big, Spend()).result()
        with pytest.raises(StoreError, match="disk is full"):
            begin(ledger, CALLS[1])
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.outcomes([CALLS[0].call_key])[CALLS[0].call_key].raw_output == "x" * 100_000
        assert begin(ledger, CALLS[1]).state == "send"
