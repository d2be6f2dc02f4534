"""A ledger in PostgreSQL: connections break, passwords stay secret, every text comes back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.postgres import PostgresLedger, escape, unescape
from contextcliff_dagster.inference.ledger.schema import LEDGER_VERSION
from contextcliff_dagster.inference.spending import Spend
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.ledger.test_ledger import CALLS, answer, begin
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres

pytestmark = pytest.mark.postgres
CANARY = "Kanarie-7f3a91c2"


@pytest.fixture
def opened(postgres: PostgresServer) -> Iterator[Ledger]:
    with Ledger.open(DatabaseUrl(postgres.url)) as ledger:
        yield ledger


def writer_of(ledger: Ledger) -> Any:
    assert isinstance(ledger.backend, PostgresLedger)
    return ledger.backend


def cut_off(server: PostgresServer) -> None:
    """End every session of the server's database but our own."""
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def test_without_a_driver_the_package_is_named(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"pip install 'contextcliff-dagster\[postgres\]'"
    with monkeypatch.context() as patched, pytest.raises(StoreError, match=message):
        patched.setitem(sys.modules, "psycopg2", None)
        Ledger.open(DatabaseUrl(postgres.url))


def test_a_session_that_is_cut_off_goes_on_over_a_new_one_and_is_the_same_owner(
    opened: Ledger, postgres: PostgresServer
) -> None:
    begun = begin(opened, CALLS[0])
    cut_off(postgres)
    opened.finish(begun.attempt_id, CALLS[0].call_key, answer(), Spend()).result()
    assert opened.backend.is_alive(opened.backend.owner)
    assert opened.outcomes([CALLS[0].call_key])[CALLS[0].call_key].raw_output == "a"
    assert opened.stats()["orphans"] == 0


def test_a_commit_whose_answer_never_came_is_not_done_twice(opened: Ledger) -> None:
    writer = writer_of(opened)
    db, flush = writer._db, writer._db.flush

    def lost_after_commit() -> None:
        is_commit = b"COMMIT" in b"".join(db._pending)
        flush()
        if is_commit:
            # The server has committed; the client's end of the wire is dead before it hears so.
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, db.raw.fileno())
            os.close(nothing)
            db._cursor.execute("SELECT 1")

    db.flush = lost_after_commit
    assert begin(opened, CALLS[0], usd=0.5).state == "send"
    assert writer._db is not db, "another connection was made"
    assert opened.stats()["attempts"] == 1
    assert opened.spent("s", "c").usd == 0.5


def test_what_was_rolled_back_with_the_connection_is_done_again(
    opened: Ledger, postgres: PostgresServer
) -> None:
    tries = 0

    def operation(db: Any) -> int:
        nonlocal tries
        tries += 1
        db.execute("INSERT INTO campaigns VALUES (?, ?, ?)", ("s", "c", "now")).rowcount  # noqa: B018
        if tries == 1:
            cut_off(postgres)
        return int(db.execute("SELECT count(*) FROM campaigns").fetchone()[0])

    assert opened.write(operation) == 1
    assert tries == 2
    assert opened.read("SELECT count(*) FROM campaigns") == [(1,)]


def test_a_server_that_stays_away_is_one_sentence_and_what_was_kept_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PostgresLedger, "patience_s", 0.5)
    with running_postgres("ledger") as server:
        url = DatabaseUrl(server.url)
        with Ledger.open(url) as ledger:
            for call in CALLS[:2]:
                begun = begin(ledger, call)
                ledger.finish(begun.attempt_id, call.call_key, answer(), Spend()).result()
            begun = begin(ledger, CALLS[2])
            server.stop()
            for fault in (
                lambda: ledger.finish(
                    begun.attempt_id, CALLS[2].call_key, answer(), Spend()
                ).result(),
                lambda: ledger.read("SELECT 1"),
                lambda: Ledger.open(url),
            ):
                with pytest.raises(StoreError, match="run the same command again") as caught:
                    fault()
                assert "\n" not in str(caught.value)
                assert server.password not in str(caught.value)
        server.start()
        with Ledger.open(url) as ledger:
            assert len(ledger.outcomes(call.call_key for call in CALLS)) == 3
            assert ledger.orphans() == []


def test_a_server_that_restarts_is_waited_for(opened: Ledger) -> None:
    with running_postgres("ledger") as server, Ledger.open(DatabaseUrl(server.url)) as ledger:
        begun = begin(ledger, CALLS[0])
        server.stop()
        kept = ledger.finish(begun.attempt_id, CALLS[0].call_key, answer(), Spend())
        assert not kept.done()
        server.start()
        kept.result(timeout=120)
        assert ledger.stats()["answers"] == 1


def test_opening_waits_for_a_server_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = itertools.count()

    with running_postgres("ledger") as server:
        server.stop()

        def start_later(self: PostgresLedger) -> bool:
            if next(tries) == 1:
                server.start()
            return True

        monkeypatch.setattr(PostgresLedger, "_try_again", start_later)
        with Ledger.open(DatabaseUrl(server.url)) as ledger:
            assert ledger.stats()["answers"] == 0
        assert next(tries) >= 2


def test_a_value_that_the_database_refuses_harms_no_other_call(opened: Ledger) -> None:
    def spoilt(db: Any) -> None:
        db.execute("INSERT INTO spend VALUES ('s', 'c', 0, ?, 0)", (10**30,))

    def good(db: Any) -> None:
        db.execute("INSERT INTO campaigns VALUES ('s', 'c', 'now')")

    begun, go = threading.Event(), threading.Event()

    def hold(db: Any) -> bool:
        begun.set()
        return go.wait(120)

    writer = writer_of(opened)
    held = writer.submit(hold)
    assert begun.wait(120)  # from here on the next two share a batch
    faulty, sound = writer.submit(spoilt), writer.submit(good)
    go.set()
    assert held.result()
    sound.result()
    with pytest.raises(StoreError, match="out of range"):
        faulty.result()


def test_a_forked_child_does_not_keep_a_dead_owner_alive(postgres: PostgresServer) -> None:
    code = (
        "import os, time; from contextcliff_dagster_tests.inference.ledger.test_ledger import *\n"
        f"ledger = Ledger.open(DatabaseUrl({postgres.url!r}))\n"
        "if os.fork() == 0:\n"
        "    os.close(1); os.read(0, 1); os._exit(0)\n"
        "print(ledger.backend.owner, flush=True); os.kill(os.getpid(), 9)\n"
    )
    stdin, end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=stdin, text=True
    )
    assert process.stdout is not None
    owner = process.stdout.read().strip()
    assert process.wait() == -signal.SIGKILL
    with Ledger.open(DatabaseUrl(postgres.url)) as ledger:
        assert len(owner) == 32
        wait_until(lambda: not ledger.backend.is_alive(owner))  # the server hears of it later
    os.close(end)


@given(st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("\0\ue0f001")))
def test_every_text_is_escaped_without_loss(text: str) -> None:
    assert "\0" not in escape(text)
    assert unescape(escape(text)) == text


def test_an_answer_with_any_character_comes_back_as_it_was(opened: Ledger) -> None:
    said = "\0nul \ue0f0 \U0001f600 'quoted' 100% ? \\ \r\n" + "x" * 10_000
    begun = begin(opened, CALLS[0])
    opened.finish(begun.attempt_id, CALLS[0].call_key, answer(said), Spend()).result()
    assert opened.outcomes([CALLS[0].call_key])[CALLS[0].call_key].raw_output == said


def test_placeholders_are_kept_apart_from_quoted_text_and_operators(opened: Ledger) -> None:
    sql = """SELECT '?%s''?' || ?, 7 % 4 AS "100%?" WHERE 'a' LIKE '%' AND ? = 1"""
    assert opened.read(sql, ("%s?", 1)) == [("?%s'?%s?", 3)]
    assert opened.read("SELECT '?%s', 7 % 4") == [("?%s", 3)]


def test_a_ledger_of_a_newer_version_is_refused_and_left_as_it_is(
    postgres: PostgresServer,
) -> None:
    url = DatabaseUrl(postgres.url)
    Ledger.open(url).close()
    postgres.execute(f"UPDATE contextcliff.ledger_version SET version = {LEDGER_VERSION + 1}")
    with pytest.raises(StoreError, match="newer version"):
        Ledger.open(url)
    version = postgres.execute("SELECT version FROM contextcliff.ledger_version")
    assert version == [(LEDGER_VERSION + 1,)]


def test_a_process_that_is_at_work_when_a_newer_one_migrates_stops(
    opened: Ledger, postgres: PostgresServer
) -> None:
    begin(opened, CALLS[0])
    postgres.execute(f"UPDATE contextcliff.ledger_version SET version = {LEDGER_VERSION + 1}")
    with pytest.raises(StoreError, match="newer version"):
        begin(opened, CALLS[1])
    postgres.execute(f"UPDATE contextcliff.ledger_version SET version = {LEDGER_VERSION}")
    assert opened.stats()["attempts"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"password": CANARY},
        {"database": "nowhere"},
        {"port": 1},
        {"host": "no.such.host.invalid"},
        {"user": "nobody"},
    ],
)
def test_who_cannot_connect_reads_one_sentence_without_the_password(
    change: dict[str, Any], postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a server that does not answer is waited for: the other faults need somebody's hand.
    monkeypatch.setattr(PostgresLedger, "patience_s", 0.0 if "port" in change else float("inf"))
    # Where the database is the fault, the password has to be right: it is looked at first.
    secret = {} if "database" in change else {"password": CANARY}
    url = replace(postgres, **{**secret, **change}).url
    with pytest.raises(StoreError, match="The call ledger postgresql://") as caught:
        Ledger.open(DatabaseUrl(url))
    told: BaseException | None = caught.value
    while told is not None:
        assert CANARY not in f"{told}{told!r}"
        assert postgres.password not in f"{told}{told!r}"
        told = told.__cause__ or told.__context__
    assert "\n" not in str(caught.value)
