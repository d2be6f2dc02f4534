"""A measurement that is ended early: by its budget, its caller, the grace, a full disk."""

from __future__ import annotations

import itertools
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import AnswersLostError, BudgetError, EngineError, StoreError
from contextcliff_dagster.inference.devices.leases import lease
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger import sqlite
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.sqlite import SqliteLedger
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.held_calls import Gate, hold_until_halted
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    faulty_server,
    openai_entry,
    read_log,
    reference_entry,
    reference_server,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE, rows_of, run
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine


def test_the_budget_stops_before_it_is_exceeded_and_the_next_run_goes_on(ledger: Ledger) -> None:
    entry = reference_entry(price=PRICE, concurrency=3)
    with pytest.raises(BudgetError, match="run the same command"):
        run(ledger, entry, budget=Budget(usd=0.6))
    spent = ledger.spent("s", "c").usd
    done = ledger.stats()["answers"]
    assert 0 < spent <= 0.6
    summary = run(ledger, entry, budget=Budget(usd=100))
    assert summary.cached == done
    assert sum(row["cost_usd"] for row in rows_of(ledger)) == pytest.approx(
        ledger.spent("s", "c").usd
    )


def test_after_the_deadline_nothing_is_sent_and_the_next_run_goes_on(ledger: Ledger) -> None:
    with reference_server(delay_ms=50) as url:
        entry = openai_entry(url, concurrency=2)
        with pytest.raises(BudgetError, match=r"everything measured is kept.*raise the deadline"):
            run(ledger, entry, deadline_at=time.monotonic())
        kept = ledger.stats()
        assert kept["answers"] == kept["attempts"] <= 2, "what was sent was waited for"
        assert run(ledger, entry, deadline_at=time.monotonic() + 3600).sent == 18 - kept["answers"]


def test_the_deadline_ends_waiting_for_a_device_too(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "one")
    held = lease(1, "somebody else")
    said: list[str] = []
    with pytest.raises(BudgetError, match=r"deadline was reached .* 18 calls.*raise the deadline"):
        run(ledger, reference_entry(gpus=1), deadline_at=time.monotonic(), on_wait=said.append)
    held.close()
    assert ledger.stats()["attempts"] == 0


def test_stop_ends_the_run_and_keeps_what_was_in_flight(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = itertools.count()
    hold_until_halted(monkeypatch, lambda model, prompt: next(begun) >= 1)
    entry = reference_entry(concurrency=2)
    summary = run(ledger, entry, should_stop=lambda: ledger.stats()["attempts"] >= 3)
    assert summary.stopped
    assert summary.answered == 3, "one, and the two that were in flight"
    assert ledger.orphans() == []
    assert ledger.stats()["attempts"] == summary.answered


def test_a_stop_that_was_requested_before_the_first_call_sends_none(ledger: Ledger) -> None:
    summary = run(ledger, should_stop=lambda: True)
    assert (summary.stopped, summary.sent) == (True, 0)
    assert ledger.stats()["attempts"] == 0


class Dropped:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_a_destructor_is_not_lost(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_until_halted(monkeypatch, lambda model, prompt: True)
    before = signal.getsignal(signal.SIGINT)
    interrupts = [Dropped()]

    def drop(progress: Progress) -> None:
        interrupts.clear()

    with pytest.raises(KeyboardInterrupt):
        run(ledger, on_progress=drop)
    assert signal.getsignal(signal.SIGINT) is before
    assert ledger.orphans() == []


def test_a_fault_of_the_callers_callback_ends_the_run_cleanly(ledger: Ledger) -> None:
    def broken(progress: Progress) -> None:
        if progress.done:
            raise RuntimeError("the caller's own error")

    with pytest.raises(RuntimeError):
        run(ledger, on_progress=broken)
    assert ledger.orphans() == []
    assert run(ledger).cached > 0


def test_calls_in_flight_are_given_up_after_the_grace_and_may_have_been_paid(
    tmp_path: Path,
) -> None:
    from contextcliff_dagster.inference.engines.base import EngineSession
    from contextcliff_dagster.inference.execution.measure import run_calls
    from contextcliff_dagster.inference.ledger.ledger import Scope
    from contextcliff_dagster.inference.requests.call_plan import plan_calls

    log = tmp_path / "requests.jsonl"
    with faulty_server(["stall"], log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=2)
        with EngineSession(entry) as session:
            calls = plan_calls(SAMPLE, session.identity.hash, RECIPE, "c", SAMPLE.bins, 6)
            scope = Scope("s", "c", "remote", session.identity.hash)
            control = RunControl(should_stop=lambda: len(read_log(log)) == 2, grace_s=0.3)
            summary = run_calls(calls, session, ledger, scope, control)
        assert (summary.stopped, summary.answered) == (True, 0)
        stats = ledger.stats()
        assert (stats["maybe_paid"], stats["orphans"]) == (2, 0)
        # Interrupted is not measured: no row, and the next run asks again.
        assert rows_of(ledger, model="remote") == []


def test_an_answer_that_is_not_committed_is_not_counted_and_ends_the_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Ledger, *arguments: Any) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(StoreError("the commit failed"))
        return future

    monkeypatch.setattr(Ledger, "finish", lost)
    announced: list[str] = []
    with pytest.raises(StoreError, match="the commit failed"):
        run(ledger, on_bin=announced.append)
    assert announced == []


@pytest.mark.parametrize("spool_is_full", [False, True])
def test_answers_that_a_locked_ledger_refuses_wait_and_are_not_paid_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spool_is_full: bool
) -> None:
    monkeypatch.setattr(sqlite, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(SqliteLedger, "patience_s", 0.0)
    gate, log = Gate(tmp_path / "gate"), tmp_path / "requests.jsonl"
    gate.let(3)
    if spool_is_full:
        (tmp_path / "_spool").write_text("no folder")
    with reference_server(gate=gate, log=log) as url:
        entry = openai_entry(url, concurrency=2)

        def lock() -> None:
            wait_until(lambda: ledger.stats()["attempts"] == 5)  # three, and two in flight
            with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                gate.open()
                ended.wait(120)

        ended, locking = threading.Event(), threading.Thread(target=lock)
        with Ledger.open(tmp_path / "state.db") as ledger:
            locking.start()
            expected = AnswersLostError if spool_is_full else StoreError
            with pytest.raises(expected, match="locked") as caught:
                run(ledger, entry)
        ended.set()
        locking.join()
        received = [line for line in read_log(log) if line["event"] == "received"]
        assert len(received) == 5
        if spool_is_full:
            (tmp_path / "_spool").unlink()
            assert len(caught.value.call_keys) == 2  # type: ignore[attr-defined]
        else:
            assert "2 answers wait in" in str(caught.value)
        with Ledger.open(tmp_path / "state.db") as ledger:
            kept = 3 if spool_is_full else 5
            assert ledger.stats()["answers"] == kept
            summary = run(ledger, entry)
            assert (summary.cached, summary.answered) == (kept, 18 - kept)


def test_a_measurement_on_a_disk_that_fills_keeps_every_answer_in_flight(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount a small file system")
    try:
        filler, gate = disk / "filler", Gate(tmp_path / "gate")
        gate.let(5)

        def fill() -> None:
            wait_until(lambda: ledger.stats()["attempts"] == 7)  # five, and two in flight
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            gate.open()

        with reference_server(gate=gate) as url:
            entry = openai_entry(url, concurrency=2)
            with (
                Ledger.open(disk / "state.db") as ledger,
                pytest.raises(StoreError, match="disk is full"),
            ):
                filling = threading.Thread(target=fill)
                filling.start()
                run(ledger, entry)
            filling.join()
            filler.unlink()
            with Ledger.open(disk / "state.db") as ledger:
                kept = ledger.stats()
                assert kept["answers"] == kept["attempts"] == 7, "five, and two in flight"
                assert kept["orphans"] == 0
                summary = run(ledger, entry)
                assert (summary.cached, summary.answered) == (kept["answers"], 18 - kept["answers"])
    finally:
        subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.parametrize("where", ["start", "stream", "count_prompt_tokens"])
def test_an_engine_that_exits_ends_the_run_with_a_sentence(
    sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(1)

    async def leave_later(*_: object) -> None:
        leave()

    engine = ScriptedEngine(lambda prompt: [])
    monkeypatch.setattr(engine, where, leave if where == "stream" else leave_later)
    with pytest.raises(EngineError, match=r"SystemExit: 1|exit code 1"):
        run(sqlite_ledger, engine=engine)
    assert sqlite_ledger.orphans() == []
