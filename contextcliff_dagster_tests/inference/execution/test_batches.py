"""Calls through batches are bought once, whatever the provider does and where we are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import BudgetError, EngineError
from contextcliff_dagster.inference.engines.base import EngineSession, TransportError
from contextcliff_dagster.inference.engines.openai.batch_interface import (
    BatchInterface,
    RemoteBatch,
)
from contextcliff_dagster.inference.execution import batches
from contextcliff_dagster.inference.execution.batches import BatchRun
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import Batching, RunControl
from contextcliff_dagster.inference.ledger import batches as ledgered
from contextcliff_dagster.inference.ledger.campaigns import record_identity
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of
from contextcliff_dagster_tests.support.servers.batch_server import BatchServer, batch_server

SAMPLE = LedgerSample(bins=3, n=6)
CALLS = 18
PRICE = {"input_usd_per_mtok": 500, "output_usd_per_mtok": 500}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    """No real time passes: a batch takes a step with each look, and looks follow at once."""
    monkeypatch.setattr(batches, "FIRST_POLL_S", 0.0)
    monkeypatch.setattr(batches, "SEEN_AFTER_S", -1.0)
    with batch_server(tmp_path / "provider", polls_a_step=1) as server:
        yield server


def run(
    ledger: Ledger,
    server: BatchServer,
    *,
    wait: bool = False,
    n: int = 6,
    budget: Budget | None = None,
    study: str = "s",
    batching: Batching | None = None,
    **options: Any,
) -> RunSummary:
    """One run of the plan, as a process that opens the ledger makes it."""
    entry = openai_entry(
        server.url, price=PRICE, window_tokens=8192, batch={"discount": 0, **options}
    )
    with EngineSession(entry) as session:
        record_identity(ledger, study, "c", entry.name, session.identity)
        scope = Scope(study, "c", entry.name, session.identity.hash)
        calls = plan_of(SAMPLE, n).calls(scope.identity_hash)
        control = RunControl(budget, batching=batching or ("wait" if wait else "submit"))
        made = BatchRun(calls, session, ledger, scope, control)
        return session.submit(made.run()).result()


def again(ledger: Ledger) -> Ledger:
    """The ledger as the next process opens it; the last one has died without closing it."""
    return Ledger.open(ledger.backend.path)  # type: ignore[attr-defined]


def bought(server: BatchServer) -> Counter[str]:
    return Counter(bill["custom_id"] for bill in server.bills())


def sizes(server: BatchServer) -> list[int]:
    """Requests of each batch."""
    files = [server.content(batch["input_file_id"]) for batch in server.batches()]
    return [len(file.read_bytes().splitlines()) for file in files]


def insist_on_every_answer(ledger: Ledger, server: BatchServer) -> None:
    assert ledger.stats()["answers"] == CALLS
    assert ledger.read("SELECT count(*) FROM claims") == [(0,)]
    assert ledger.orphans() == []
    assert ledgered.batches_of(ledger, is_open=True) == []
    assert not verify(ledger).faults
    assert len(bought(server)) == CALLS


def test_a_run_submits_and_a_later_one_takes_in(ledger: Ledger, server: BatchServer) -> None:
    first = run(ledger, server)
    assert (first.sent, first.in_batches, first.answered) == (CALLS, CALLS, 0)
    (batch,) = ledgered.batches_of(ledger, is_open=True)
    (remote,) = server.batches()
    assert (batch.requests, batch.remote_id) == (CALLS, remote["id"])
    assert remote["metadata"] == {"contextcliff": batch.owner, "study": "s", "campaign": "c"}
    server.advance(3)
    last = run(ledger, server)
    assert (last.sent, last.in_batches, last.answered) == (0, 0, CALLS)
    insist_on_every_answer(ledger, server)
    assert set(bought(server).values()) == {1}
    usd = ledger.spent("s", "c").usd
    assert usd == pytest.approx(
        sum((b["prompt_tokens"] + b["completion_tokens"]) * 500e-6 for b in server.bills())
    )
    (row,) = ledger.read("SELECT max(ttft_ms), max(duration_ms), max(queue_ms) FROM results")
    assert row == (None, None, None)  # not measured
    assert run(ledger, server).cached == CALLS


def test_one_that_waits_ends_with_every_answer(ledger: Ledger, server: BatchServer) -> None:
    assert run(ledger, server, wait=True).answered == CALLS
    insist_on_every_answer(ledger, server)


FREE = "reordered", "error_line", "expired", "cancelled", "unknown_id", "failed"
PAID_TWICE = "truncated", "gone"


@pytest.mark.parametrize("fault", [*FREE, *PAID_TWICE, "content_cut", "retrieve_500"])
def test_what_a_batch_lacks_is_asked_again(ledger: Ledger, server: BatchServer, fault: str) -> None:
    server.faults[fault] = 1
    for _ in range(12):
        try:
            if run(ledger, server).cached == CALLS:
                break
        except EngineError:
            continue
    insist_on_every_answer(ledger, server)
    times = set(bought(server).values())
    assert times == {1} or (fault in PAID_TWICE and times <= {1, 2})
    paid = sum((b["prompt_tokens"] + b["completion_tokens"]) * 500e-6 for b in server.bills())
    spent = ledger.spent("s", "c").usd
    assert spent == pytest.approx(paid) if fault in FREE else spent >= paid * (1 - 1e-9)


@pytest.mark.parametrize("fault", ["error_status", "status_400"])
def test_a_refused_request_is_not_asked_again_in_the_same_run(
    ledger: Ledger, server: BatchServer, fault: str
) -> None:
    server.faults[fault] = 1
    summary = run(ledger, server, wait=True)
    assert (summary.answered, summary.transport_errors) == (CALLS - 1, 1)
    assert len(server.batches()) == 1
    assert run(ledger, server, wait=True).answered == 1
    insist_on_every_answer(ledger, server)


STEPS = "begun", "uploaded", "created", "stored in part", "stored"


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_goes_on_where_its_process_died(
    ledger: Ledger, server: BatchServer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each place between two records: what was done is known to the provider alone, or to us."""

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        if step == "begun":
            patch.setattr(batches.BatchInterface, "upload", dies)
        elif step in ("uploaded", "created"):
            note, wanted = ledgered.note, "file_id" if step == "uploaded" else "remote_id"

            def noted(ledger: Ledger, batch: ledgered.CallBatch, **values: str | None) -> None:
                if wanted in values:
                    raise Killed
                note(ledger, batch, **values)

            patch.setattr(batches.ledgered, "note", noted)
        elif step == "stored in part":
            run(ledger, server)
            server.advance(3)
            patch.setattr(batches, "_STORED_AT_ONCE", 5)
            keep, kept = ledgered.keep_answers, iter(range(2))

            def stores(*arguments: Any) -> None:
                if next(kept, None) is None:
                    raise Killed
                keep(*arguments)

            patch.setattr(batches.ledgered, "keep_answers", stores)
        else:
            run(ledger, server)
            server.advance(3)
            patch.setattr(batches.ledgered, "give_up", dies)
        with pytest.raises(Killed):
            run(ledger, server)
    ledger.backend.close()
    with again(ledger) as after:
        assert run(after, server, wait=True).planned == CALLS
        insist_on_every_answer(after, server)
    assert set(bought(server).values()) == {1}
    assert len(server.batches()) == 1


def test_a_batch_of_which_no_answer_came_is_found_by_its_metadata(
    ledger: Ledger, server: BatchServer
) -> None:
    server.faults["create_unanswered"] = 1
    assert run(ledger, server).in_batches == CALLS
    assert run(ledger, server, wait=True).answered == CALLS
    insist_on_every_answer(ledger, server)
    assert len(server.batches()) == 1


def test_a_batch_that_is_not_listed_yet_is_not_created_again(
    ledger: Ledger, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago its calls were claimed: the creation itself may be seconds old."""
    monkeypatch.setattr(batches, "SEEN_AFTER_S", 3600.0)
    server.faults["upload_500"] = 1
    with pytest.raises(EngineError):
        run(ledger, server)
    ledger.write(lambda db: db.execute("UPDATE call_batches SET begun_at = '2026-01-01T00:00:00Z'"))
    server.faults["create_unanswered"] = 1
    assert run(ledger, server).in_batches == CALLS

    async def nothing(*_: Any) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(batches.BatchInterface, "find", nothing)
        assert run(ledger, server).in_batches == CALLS
    assert len(server.batches()) == 1
    assert run(ledger, server, wait=True).answered == CALLS
    insist_on_every_answer(ledger, server)


def test_one_process_at_a_time_looks_after_a_batch(ledger: Ledger, server: BatchServer) -> None:
    run(ledger, server)
    server.advance(3)
    with again(ledger) as other:
        assert run(other, server).answered == 0  # the first one lives
        assert len(server.batches()) == 1
        assert run(ledger, server).answered == CALLS
        assert run(other, server).cached == CALLS


def test_a_streamed_run_leaves_to_a_batch_what_it_is_asked(
    ledger: Ledger, server: BatchServer
) -> None:
    run(ledger, server, n=2)
    entry = openai_entry(server.url, price=PRICE, window_tokens=8192)
    summary = measure(plan_of(SAMPLE, 6), entry, ledger)
    assert (summary.in_batches, summary.answered, summary.planned) == (6, 12, CALLS)
    assert run(ledger, server, wait=True).answered == 6
    assert ledger.stats()["answers"] == ledger.stats()["attempts"] == len(server.bills()) == CALLS


def test_a_batch_has_the_size_that_the_provider_allows(ledger: Ledger, server: BatchServer) -> None:
    run(ledger, server, max_requests=5)
    assert sizes(server) == [5, 5, 5, 3]
    assert run(ledger, server, wait=True).answered == CALLS
    insist_on_every_answer(ledger, server)


def test_no_file_is_larger_than_the_provider_allows(ledger: Ledger, server: BatchServer) -> None:
    run(ledger, server, max_mb=0.004)
    files = [server.content(batch["input_file_id"]) for batch in server.batches()]
    assert len(files) > 2
    assert max(file.stat().st_size for file in files) <= 4_000
    assert run(ledger, server, wait=True).answered == CALLS


def test_a_batch_that_its_provider_lost_is_charged_and_asked_again(
    ledger: Ledger, server: BatchServer
) -> None:
    run(ledger, server)
    reserved = ledger.spent("s", "c").usd
    (lost,) = server.batches()
    server._path(lost["id"]).unlink()
    assert run(ledger, server).in_batches == CALLS
    assert ledger.spent("s", "c").usd == pytest.approx(2 * reserved)
    server.advance(3)
    assert run(ledger, server).answered == CALLS
    insist_on_every_answer(ledger, server)


def test_what_a_run_that_failed_had_set_free_is_asked_again_by_resume(
    ledger: Ledger, server: BatchServer
) -> None:
    run(ledger, server, max_requests=CALLS // 2)
    server.faults["expired"] = 1
    server.advance(2)
    server.faults["retrieve_401"] = 1
    for _ in range(3):
        with suppress(EngineError):
            run(ledger, server, batching="resume")
        server.advance(3)
    run(ledger, server, batching="resume")
    insist_on_every_answer(ledger, server)
    assert set(bought(server).values()) == {1}


def test_calls_that_another_study_asked_are_taken_in(ledger: Ledger, server: BatchServer) -> None:
    run(ledger, server)
    assert run(ledger, server, study="t").in_batches == CALLS
    server.advance(3)
    assert run(ledger, server, study="t").answered == CALLS
    insist_on_every_answer(ledger, server)
    assert ledger.spent("t", "c").usd == 0


def test_a_batch_that_a_process_looks_after_is_not_cancelled(
    ledger: Ledger, server: BatchServer
) -> None:
    run(ledger, server)
    (batch,) = ledgered.batches_of(ledger, is_open=True)
    entry = openai_entry(server.url, batch={"discount": 0})
    with again(ledger) as other, pytest.raises(EngineError, match="Another process"):
        batches.cancel(entry, other, batch)
    assert batches.cancel(entry, ledger, batch) == "cancelling"


def test_a_batch_that_is_too_many_is_sent_again_once_another_has_ended(
    ledger: Ledger, server: BatchServer
) -> None:
    server.polls_a_step = 1
    server.faults["failed"] = 2
    done = run(ledger, server, wait=True, max_requests=6)
    assert (done.answered, done.transport_errors) == (CALLS, 0)
    assert len(sizes(server)) == -(-CALLS // 6) + 2
    insist_on_every_answer(ledger, server)


def test_a_refusal_is_said_although_another_error_ends_the_run(
    ledger: Ledger, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ledger, server, max_requests=9)
    server.faults["failed"] = 1
    server.advance(1)
    _, second = ledgered.batches_of(ledger, is_open=True)
    retrieve = BatchInterface.retrieve

    async def unanswered(of: BatchInterface, batch_id: str) -> RemoteBatch:
        if batch_id == second.remote_id:
            raise TransportError("drop", "the connection broke")
        return await retrieve(of, batch_id)

    monkeypatch.setattr(BatchInterface, "retrieve", unanswered)
    entry = openai_entry(server.url, window_tokens=8192, price=PRICE, batch={"discount": 0})
    with EngineSession(entry) as session:
        scope = Scope("s", "c", entry.name, session.identity.hash)
        calls = plan_of(SAMPLE, 6).calls(scope.identity_hash)
        made = BatchRun(calls, session, ledger, scope, RunControl(batching="submit"))
        with pytest.raises(EngineError, match="the connection broke"):
            session.submit(made.run()).result()
    assert "failed at its provider: token_limit_exceeded" in made.said.get_nowait()
    assert len(sizes(server)) == 2


def test_a_failed_batch_that_counts_answers_stays_charged(
    ledger: Ledger, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ledger, server)
    reserved = ledger.spent("s", "c").usd
    server.faults["failed"] = 1
    server.advance(1)
    whole = BatchInterface._batch
    monkeypatch.setattr(
        BatchInterface, "_batch", lambda of, body: replace(whole(of, body), completed=4)
    )
    summary = run(ledger, server)
    assert (summary.maybe_paid, summary.maybe_paid_usd) == (CALLS, pytest.approx(reserved))
    assert ledger.spent("s", "c").usd == pytest.approx(2 * reserved)


def test_refused_batches_are_no_attempts(ledger: Ledger, server: BatchServer) -> None:
    for _ in range(6):
        server.faults["create_400"] = 1
        with pytest.raises(EngineError, match="refuses the batch"):
            run(ledger, server)
    run(ledger, server)
    server.faults["expired"] = 1
    server.advance(3)
    assert run(ledger, server, batching="resume").in_batches == CALLS // 2
    server.advance(3)
    assert run(ledger, server, batching="resume").answered == CALLS // 2
    insist_on_every_answer(ledger, server)


def test_calls_of_a_batch_that_was_cancelled_where_it_is_gone_are_not_asked_by_resume(
    ledger: Ledger, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ledger, server)
    (batch,) = ledgered.batches_of(ledger, is_open=True)

    async def nowhere(*of: object) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(batches, "_found", nowhere)
        assert batches.cancel(openai_entry(server.url, batch={"discount": 0}), ledger, batch) == (
            "gone"
        )
    assert run(ledger, server, batching="resume").in_batches == 0
    assert len(sizes(server)) == 1


def test_the_budget_bounds_what_is_asked(ledger: Ledger, server: BatchServer) -> None:
    with pytest.raises(BudgetError, match="has no room"):
        run(ledger, server, budget=Budget(usd=0.01))
    first = run(ledger, server, budget=Budget(usd=1.5))  # answers free what is reserved for more
    reserved = ledger.spent("s", "c").usd
    (asked,) = sizes(server)
    assert 0 < asked == first.in_batches < CALLS
    assert reserved <= 1.5
    assert run(ledger, server, wait=True, budget=Budget(usd=100)).in_batches == 0
    insist_on_every_answer(ledger, server)


def test_a_provider_that_refuses_batches_leaves_every_call_free(
    ledger: Ledger, server: BatchServer
) -> None:
    server.faults["create_400"] = 1
    with pytest.raises(EngineError):
        run(ledger, server)
    assert ledger.spent("s", "c").usd == pytest.approx(0)
    assert ledger.read("SELECT count(*) FROM claims") == [(0,)]
    assert run(ledger, server, wait=True).answered == CALLS


def test_what_is_no_longer_asked_is_kept_where_it_was_paid(
    ledger: Ledger, server: BatchServer
) -> None:
    run(ledger, server)
    server.advance(3)
    assert run(ledger, server, n=2).answered == 6
    insist_on_every_answer(ledger, server)
