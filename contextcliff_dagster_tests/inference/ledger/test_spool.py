"""Answers that the ledger refuses wait in a file, and are taken in once, whatever happens."""

from __future__ import annotations

import signal
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import AnswersLostError, StoreError
from contextcliff_dagster.inference.ledger import backend, owners, sqlite
from contextcliff_dagster.inference.ledger import postgres as postgres_writer
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.ledger.test_ledger import (
    CALLS,
    SAMPLE,
    SCOPE,
    answer,
    begin,
    source,
)
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.postgres import PostgresServer
from contextcliff_dagster_tests.support.records.calls import RECIPE

KEYS = [call.call_key for call in CALLS]
PAID = Spend(0.25, 10, 1)


@contextmanager
def refusing(ledger: Ledger) -> Iterator[None]:
    """The database takes no transaction meanwhile."""

    def refuse(operations: Any) -> Any:
        raise StoreError("The call ledger is away.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger.backend, "_transact", refuse)
        yield


def leave_waiting(where: Path | DatabaseUrl, *numbers: int) -> str:
    """Answer some of the calls while the ledger refuses; who was charged for them."""
    with Ledger.open(where) as ledger:
        begun = {n: begin(ledger, CALLS[n], usd=0.5) for n in numbers}
        with refusing(ledger):
            for n, one in begun.items():
                kept = ledger.finish(one.attempt_id, KEYS[n], answer(f"late {n}"), PAID)
                with pytest.raises(StoreError, match="is away"):
                    kept.result()
        return ledger.backend.owner


def test_an_answer_that_is_refused_waits_and_the_next_command_takes_it_in(
    ledger_at: Path | DatabaseUrl,
) -> None:
    owner = leave_waiting(ledger_at, 0, 1)
    with Ledger.open(ledger_at) as ledger:
        assert ledger.spool.files() == [], "taken in"
        assert [ledger.outcomes(KEYS)[key].raw_output for key in KEYS[:2]] == ["late 0", "late 1"]
        assert ledger.spent("s", "c") == Spend(0.5, 20, 2)
        assert (ledger.orphans(), verify(ledger).faults) == ([], ())
        assert begin(ledger, CALLS[0]).state == "finished"
        assert ledger.read("SELECT owner FROM claims WHERE owner = ?", (owner,)) == []


def test_the_file_is_private_and_says_how_many_wait(tmp_path: Path) -> None:
    ledger_at = tmp_path / "state.db"
    with Ledger.open(ledger_at) as ledger:
        begun = begin(ledger, CALLS[0])
        with refusing(ledger):
            ledger.finish(begun.attempt_id, KEYS[0], answer(), PAID).exception()
        (file,) = (tmp_path / "_spool").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stem == ledger.backend.owner
        assert ledger.spool.sentence() == (
            f"1 answer waits in {tmp_path / '_spool'}; it is taken in when the ledger takes writes."
        )


def test_an_answer_that_came_meanwhile_stands_and_the_late_one_was_paid_in_vain(
    ledger_at: Path | DatabaseUrl,
) -> None:
    owner = leave_waiting(ledger_at, 0)
    (file,) = spool_of(ledger_at).files()
    hidden = file.rename(file.with_suffix(".hidden"))
    with Ledger.open(ledger_at) as other:  # of another machine, that does not see the file
        wait_until(lambda: other.release_dead(owner))
        again = begin(other, CALLS[0])
        other.finish(again.attempt_id, KEYS[0], answer("first"), PAID).result()
    hidden.rename(file)
    with Ledger.open(ledger_at) as ledger:
        assert ledger.outcomes(KEYS)[KEYS[0]].raw_output == "first"
        assert ledger.stats()["maybe_paid"] == 1
        assert ledger.spent("s", "c") == Spend(0.5, 20, 2)
        assert verify(ledger).faults == ()


def spool_of(where: Path | DatabaseUrl) -> owners.Spool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "take_in", lambda self: None)
        with Ledger.open(where) as ledger:
            return ledger.spool


def test_a_call_of_a_dead_process_is_not_made_again_while_its_answer_waits(
    ledger_at: Path | DatabaseUrl,
) -> None:
    with Ledger.open(ledger_at) as other:
        owner = leave_waiting(ledger_at, 0)
        assert begin(other, CALLS[0]).owner == owner
        wait_until(lambda: other.release_dead(owner))
        assert begin(other, CALLS[0]).state == "finished"


def test_one_ledger_that_stays_open_takes_its_own_answers_in_before_it_pays(
    ledger: Ledger,
) -> None:
    begun = begin(ledger, CALLS[0])
    with refusing(ledger):
        ledger.finish(begun.attempt_id, KEYS[0], answer(), PAID).exception()
    ledger.make_ready()
    assert begin(ledger, CALLS[0]).state == "finished"
    assert ledger.spool.sentence() == ""


def test_lines_that_were_altered_or_are_of_another_ledger_stay_and_harm_no_other(
    tmp_path: Path,
) -> None:
    leave_waiting(tmp_path / "state.db", 0, 1, 2)
    (file,) = (tmp_path / "_spool").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    altered = lines[0].replace(b"late 0", b"late 9")
    unknown = lines[1].replace(b'"attempt_id": 2', b'"attempt_id": 99')
    file.write_bytes(altered + unknown + b'{"cut of\n' + lines[2])
    for _ in range(2):
        with Ledger.open(tmp_path / "state.db") as ledger:
            assert list(ledger.outcomes(KEYS)) == [KEYS[2]]
            told = ledger.spool.sentence()
            assert told.startswith("3 lines were altered in ")
            assert ", or of another ledger; they stay until " in told
    assert file.read_bytes() == altered + unknown + b'{"cut of\n'


FATES = st.sampled_from(["stored", "waits", "waits, and is paid again", "never answered"])


@given(st.lists(FATES, min_size=8, max_size=8), st.integers(0, 3), st.booleans())
def test_however_often_they_are_taken_in_no_answer_counts_twice(
    ledger_at: Path | DatabaseUrl, fates: list[str], more: int, cut_short: bool
) -> None:
    # Each example has calls of its own.
    scope = replace(SCOPE, campaign=uuid.uuid4().hex)
    calls = plan_calls(SAMPLE, "identity", RECIPE, scope.campaign, SAMPLE.bins, 4)
    with Ledger.open(ledger_at) as ledger:
        for call, fate in zip(calls, fates, strict=True):
            number = begin(ledger, call, 0.5, scope=scope).attempt_id
            if fate == "stored":
                ledger.finish(number, call.call_key, answer("on time"), PAID).result()
            elif fate != "never answered":
                with refusing(ledger):
                    ledger.finish(number, call.call_key, answer("late"), PAID).exception()
        if files := ledger.spool.files():
            kept = files[0].read_bytes()
        for call, fate in zip(calls, fates, strict=True):
            if fate == "waits, and is paid again":
                ledger.release(call.call_key).result()
                ledger.write(lambda db: db.execute("DELETE FROM claims"))
                number = begin(ledger, call, 0.5, scope=scope).attempt_id
                ledger.finish(number, call.call_key, answer("paid again"), PAID).result()
    for _ in range(1 + more):
        with Ledger.open(ledger_at) as ledger:
            assert not ledger.spool.files()
        if files and cut_short:  # killed after the commit: the file is still there
            files[0].write_bytes(kept)
    with Ledger.open(ledger_at) as ledger:
        expected = {"stored": "on time", "waits": "late", "waits, and is paid again": "paid again"}
        have = {k: o.raw_output for k, o in ledger.outcomes(c.call_key for c in calls).items()}
        assert have == {
            call.call_key: expected[fate]
            for call, fate in zip(calls, fates, strict=True)
            if fate in expected
        }
        twice, never = fates.count("waits, and is paid again"), fates.count("never answered")
        spent = 0.25 * (8 - never + twice) + 0.5 * never
        assert ledger.spent("s", scope.campaign).usd == pytest.approx(spent)
        assert len(ledger.orphans("s", scope.campaign)) == never


@pytest.mark.parametrize("commits", [0, 1, 3, 4])
def test_a_process_that_is_killed_while_it_takes_in_leaves_nothing_twice(
    ledger_at: Path | DatabaseUrl, commits: int
) -> None:
    leave_waiting(ledger_at, 0, 1, 2, 3)
    code = (
        "import os; from contextcliff_dagster_tests.inference.ledger.test_ledger import *\n"
        "from contextcliff_dagster.inference.ledger import backend, owners as spool\n"
        "backend._BATCH, took, unlink = 1, spool._end, Path.unlink\n"
        "done = []\n"
        "def die(*arguments):\n"
        f"    if len(done) >= {commits}: os.kill(os.getpid(), 9)\n"
        "def counted(future):\n"
        "    die(); result = took(future); done.append(1); return result\n"
        "spool._end, Path.unlink = counted, lambda path, **more: (\n"
        "    die() if path.suffix == '.jsonl' else unlink(path, **more))\n"
        f"Ledger.open({source(ledger_at)})"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    with Ledger.open(ledger_at) as ledger:
        assert {o.raw_output for o in ledger.outcomes(KEYS).values()} == {
            f"late {n}" for n in range(4)
        }
        assert ledger.read("SELECT count(*) FROM attempts") == [(4,)]
        assert ledger.spent("s", "c") == Spend(1.0, 40, 4)
        assert (ledger.orphans(), ledger.spool.files()) == ([], [])
        assert verify(ledger).faults == ()


def test_where_the_spool_cannot_be_written_the_calls_are_named(
    sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owners, "write_atomic", full)
    begun = begin(sqlite_ledger, CALLS[0])
    with refusing(sqlite_ledger):
        kept = sqlite_ledger.finish(begun.attempt_id, KEYS[0], answer(), PAID)
        with pytest.raises(StoreError, match="is away") as caught:
            kept.result()
    told = sqlite_ledger.told(caught.value)
    assert isinstance(told, AnswersLostError)
    assert told.call_keys == (KEYS[0],)
    assert "No space left" in str(told)


# --- who refuses, and for how long ----------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program keeps the file to itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def impatient_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(backend, "TRY_EVERY_S", 0.0)


@pytest.fixture
def patient(impatient_turns: None, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger that waits as long as it takes."""
    with Ledger.open(tmp_path / "state.db") as opened:
        opened.backend.patience_s = float("inf")
        yield opened


def test_a_refusal_that_passes_is_waited_for_and_nothing_begins_meanwhile(
    patient: Ledger, tmp_path: Path
) -> None:
    begun = begin(patient, CALLS[0])
    with locked(tmp_path / "state.db"):
        kept = patient.finish(begun.attempt_id, KEYS[0], answer(), PAID)
        new = patient.begin(CALLS[1], CALLS[1].prompt(), SCOPE, PAID, Budget())
        wait_until(lambda: patient.backend._refusing_since is not None)
        assert not kept.done()
        assert not new.done()
    kept.result(120)
    assert new.result(120).state == "send"
    assert patient.spool.files() == []


def test_a_process_that_is_to_end_does_not_wait(patient: Ledger, tmp_path: Path) -> None:
    begun = begin(patient, CALLS[0])
    with locked(tmp_path / "state.db"):
        kept = patient.finish(begun.attempt_id, KEYS[0], answer(), PAID)
        wait_until(lambda: patient.backend._refusing_since is not None)
        patient.backend.hurry()
        with pytest.raises(StoreError, match="locked"):
            kept.result(120)
    assert patient.spool.sentence().startswith("1 answer waits")


def test_once_a_lock_was_waited_for_in_vain_no_further_answer_waits_its_whole_turn(
    patient: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [begin(patient, call) for call in CALLS[:3]]
    patient.backend.hurry()
    monkeypatch.setattr(sqlite, "_TURN_SECONDS", 0.0)
    with locked(tmp_path / "state.db"):
        for one, key in zip(begun, KEYS, strict=False):
            kept = patient.finish(one.attempt_id, key, answer(), PAID)
            with pytest.raises(StoreError, match="locked"):
                kept.result(120)
            monkeypatch.setattr(sqlite, "_TURN_SECONDS", 3600.0)
    assert patient.spool.sentence().startswith("3 answers wait")


@pytest.mark.postgres
def test_once_a_lock_of_postgresql_was_waited_for_in_vain_no_answer_waits_its_whole_turn(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg2

    with postgres.fresh_database() as server, Ledger.open(DatabaseUrl(server.url)) as ledger:
        begun = [begin(ledger, call) for call in CALLS[:3]]
        ledger.backend.hurry()
        monkeypatch.setattr(postgres_writer, "_TURN_SECONDS", 0.0)
        with closing(psycopg2.connect(server.url)) as other, other.cursor() as cursor:
            cursor.execute("LOCK TABLE contextcliff.results IN ACCESS EXCLUSIVE MODE")
            for one, key in zip(begun, KEYS, strict=False):
                kept = ledger.finish(one.attempt_id, key, answer(), PAID)
                with pytest.raises(StoreError, match="locked"):
                    kept.result(120)
                monkeypatch.setattr(postgres_writer, "_TURN_SECONDS", 3600.0)
        assert ledger.spool.sentence().startswith("3 answers wait")


def test_without_room_for_the_reserve_nothing_is_begun_and_the_bytes_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "state.db.reserve").mkdir()
    with Ledger.open(tmp_path / "state.db") as ledger:
        assert ledger.stats()["answers"] == 0, "reading needs no reserve"
        with pytest.raises(StoreError, match=r"no room for the 4,194,304 bytes.*free some space"):
            ledger.make_ready()


@pytest.mark.postgres
@pytest.mark.parametrize(
    "code", ["57014", "55P03", "42501", "53100", "53300", "58030", "25006", "40P01", "XX000"]
)
def test_whatever_postgresql_refuses_is_tried_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(backend, "TRY_EVERY_S", 0.0)
    tries = 0

    def operation(db: Any) -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$"
            db.execute(raising).rowcount  # noqa: B018
        return int(db.execute("SELECT 7").fetchone()[0])

    with Ledger.open(DatabaseUrl(postgres.url)) as ledger:
        assert ledger.write(operation) == 7
        assert tries == 3
        tries, ledger.backend.patience_s = 0, 0.0
        with pytest.raises(StoreError) as caught:
            ledger.write(operation)
        assert postgres.password not in str(caught.value)


@pytest.mark.postgres
def test_a_read_only_server_lets_answers_wait_and_commands_that_read_go_on(
    postgres: PostgresServer,
) -> None:
    where = DatabaseUrl(postgres.url)
    read_only = f"ALTER DATABASE {postgres.database} SET default_transaction_read_only ="
    elsewhere = replace(postgres, database="postgres")
    with Ledger.open(where) as ledger:
        ledger.backend.patience_s = 0.0
        begun = begin(ledger, CALLS[0])
        elsewhere.execute(f"{read_only} on")
        ledger.write(lambda db: db.execute("SET default_transaction_read_only = on").rowcount)
        kept = ledger.finish(begun.attempt_id, KEYS[0], answer(), PAID)
        with pytest.raises(StoreError, match="read-only"):
            kept.result()
    with Ledger.open(where) as reading:
        assert reading.stats()["answers"] == 0
        assert reading.spool.sentence().startswith("1 answer waits")
    elsewhere.execute(f"{read_only} off")
    with Ledger.open(where) as ledger:
        assert ledger.stats()["answers"] == 1
        assert ledger.spool.files() == []
