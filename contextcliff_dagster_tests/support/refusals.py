"""Writers whose ledger takes no writes any more while their calls are in flight.

The judge is the request log of the server: what it answered has to be in the ledger or in the
spool, and the next run asks only for the rest.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster_tests.support.child_processes import wait_until
from contextcliff_dagster_tests.support.crowd import lines_of, texts_to_keys
from contextcliff_dagster_tests.support.measuring_process import Measurement
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres
from contextcliff_dagster_tests.support.records.calls import read_log, unreliable_server

WRITERS, AT_ONCE, CALLS = 3, 16, 240
_BINS = 3
_ENDS_S = 120
_FORESEEN = {0, 2, 5, 130, 143}
"""Exit codes."""


_ROLE = "measurer"


@dataclass(frozen=True)
class _Place:
    """Where a trial's ledger is: a file on ``disk``, or a database of ``server``, whose owner is a
    role without further rights."""

    disk: Path
    server: PostgresServer | None = None

    @property
    def ledger(self) -> str:
        if self.server is None:
            return str(self.disk / "state.db")
        return replace(self.server, user=_ROLE, password=_ROLE).url

    @property
    def postgres(self) -> PostgresServer:
        """As its superuser."""
        assert self.server is not None
        return self.server

    def hand_over(self) -> None:
        """Make the role, and the owner of the database."""
        with suppress(Exception):  # it is there since the trial before
            self.postgres.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD '{_ROLE}'")
        self.postgres.execute(f"ALTER DATABASE {self.postgres.database} OWNER TO {_ROLE}")

    def disconnect(self) -> None:
        """End the sessions of the role, as a failover or an administrator does."""
        self.postgres.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{_ROLE}'"
        )


@contextmanager
def _locked(place: _Place) -> Iterator[None]:
    with closing(sqlite3.connect(place.ledger, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def _read_only(place: _Place) -> Iterator[None]:
    def switch(to: str) -> None:
        server = replace(place.postgres, database="postgres")
        server.execute(f"ALTER SYSTEM SET default_transaction_read_only = {to}")
        server.execute("SELECT pg_reload_conf()")
        wait_until(lambda: server.execute("SHOW default_transaction_read_only") == [(to,)])

    switch("on")
    try:
        yield
    finally:
        switch("off")


@contextmanager
def _down(place: _Place) -> Iterator[None]:
    place.postgres.stop()
    try:
        yield
    finally:
        place.postgres.start()


@contextmanager
def _again_and_again(act: Callable[[], None], *, pause_s: float) -> Iterator[None]:
    """``act`` beside the block, with ``pause_s`` seconds between two times."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _cancelled(place: _Place) -> AbstractContextManager[None]:
    """Every statement that is found running is cancelled."""

    def cancel() -> None:
        place.postgres.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE state = 'active'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        )

    return _again_and_again(cancel, pause_s=0.002)


@contextmanager
def _table_locked(place: _Place, setting: str) -> Iterator[None]:
    """Another session holds the table as VACUUM FULL does, and waiting ends by ``setting``."""
    import psycopg2

    role = f"ALTER ROLE {_ROLE}"
    place.postgres.execute(f"{role} SET {setting} = '200ms'")
    place.disconnect()
    with closing(psycopg2.connect(place.postgres.url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE contextcliff.results IN ACCESS EXCLUSIVE MODE")
        try:
            yield
        finally:
            other.rollback()
            place.postgres.execute(f"{role} RESET {setting}")


def _upkeep(place: _Place) -> AbstractContextManager[None]:
    """VACUUM FULL, which takes the locks of a dump too, again and again."""

    def keep_up() -> None:
        place.postgres.execute("VACUUM FULL contextcliff.results")
        place.postgres.execute("VACUUM FULL contextcliff.attempts")

    return _again_and_again(keep_up, pause_s=0.05)


@contextmanager
def _changed(place: _Place, change: str, back: str, *, disconnect: bool = True) -> Iterator[None]:
    place.postgres.execute(change)
    if disconnect:
        place.disconnect()
    try:
        yield
    finally:
        place.postgres.execute(back)


_RIGHTS = "INSERT, UPDATE ON ALL TABLES IN SCHEMA contextcliff"


def _revoked(place: _Place) -> AbstractContextManager[None]:
    revoke, grant = (f"{what} {_RIGHTS}" for what in ("REVOKE", "GRANT"))
    return _changed(place, f"{revoke} FROM {_ROLE}", f"{grant} TO {_ROLE}", disconnect=False)


def _password_changed(place: _Place) -> AbstractContextManager[None]:
    change = f"ALTER ROLE {_ROLE} PASSWORD"
    return _changed(place, f"{change} 'another'", f"{change} '{_ROLE}'")


def _no_connections(place: _Place) -> AbstractContextManager[None]:
    change = f"ALTER ROLE {_ROLE} CONNECTION LIMIT"
    return _changed(place, f"{change} 0", f"{change} -1")


@contextmanager
def _full(place: _Place) -> Iterator[None]:
    """No byte is free on the disk of the ledger, nor, with a file, on that of the spool."""
    filler = place.disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()
        if place.server:
            with suppress(AssertionError):  # it may have run on
                place.server.start()


@contextmanager
def _without_reserve(place: _Place) -> Iterator[None]:
    filler = place.disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(place.disk).free - (3 << 20)))
    try:
        yield
    finally:
        filler.unlink()


KINDS: dict[str, tuple[str, Callable[[_Place], Any]]] = {
    "locked": ("sqlite", _locked),
    "interrupted": ("sqlite", _locked),
    "terminated": ("sqlite", _locked),
    "full": ("sqlite", _full),
    "no-reserve": ("sqlite", _without_reserve),
    "read-only": ("postgres", _read_only),
    "cancelled": ("postgres", _cancelled),
    "down": ("postgres", _down),
    "statement-timeout": ("postgres", partial(_table_locked, setting="statement_timeout")),
    "lock-timeout": ("postgres", partial(_table_locked, setting="lock_timeout")),
    "upkeep": ("postgres", _upkeep),
    "revoked": ("postgres", _revoked),
    "password": ("postgres", _password_changed),
    "connections": ("postgres", _no_connections),
    "server-full": ("postgres", _full),
}
"""What is tried: the database, and how it refuses."""
_DISK_MB = {"full": 24, "no-reserve": 24, "server-full": 160}


def refused(
    kind: str, trials: int, folder: Path, say: Callable[[str], None] = lambda said: None
) -> dict[str, Any]:
    """Let the ledger refuse ``trials`` times, each at a moment of its own; figures and claims."""
    database, refuse = KINDS[kind]
    rng, done = random.Random(0), []
    with ExitStack() as stack:
        server = None
        disk = stack.enter_context(_disk(folder, _DISK_MB[kind])) if kind in _DISK_MB else folder
        if database == "postgres":
            if kind in _DISK_MB:
                folder.chmod(0o711)  # the server runs as a user of its own
                disk.chmod(0o777)
                stack.enter_context(_temporary_files_in(disk))
            server = stack.enter_context(running_postgres("ledger"))
        for number in range(trials):
            home = Path(tempfile.mkdtemp(dir=folder))
            with ExitStack() as of_trial:
                if server:
                    place = _Place(disk, of_trial.enter_context(server.fresh_database()))
                    place.hand_over()
                elif kind in _DISK_MB:
                    place = _Place(Path(tempfile.mkdtemp(dir=disk)))
                else:
                    place = _Place(home)
                done.append(_trial(kind, place, refuse, home, rng))
                if place.disk not in (disk, home):  # the next trial needs the room
                    shutil.rmtree(place.disk)
            say(f"trial {number + 1}: {done[-1]}")
    total = {
        name: sum(one[name] for one in done)
        for name in ("answered", "stored", "waited", "lost", "twice", "next run")
    }
    codes = Counter(code for one in done for code in one["codes"])
    return {
        "kind": kind,
        "trials": trials,
        "writers": WRITERS,
        **total,
        "exit codes": dict(codes),
        "claims": {
            "what was answered is in ledger or spool, or named": total["answered"]
            == total["stored"] + total["waited"] + total["lost"],
            "none is lost": total["lost"] == 0,
            "none is paid twice": total["twice"] == 0,
            "the next run pays for the rest alone": all(
                one["next run"] == CALLS - one["stored"] - one["waited"] for one in done
            ),
            "no process hangs or fails in an unforeseen way": not codes.keys()
            - {0, 2, 5, 130, 143},
            "the ledgers are sound": all(one["sound"] for one in done),
        },
    }


def _trial(
    kind: str, place: _Place, refuse: Callable[[_Place], Any], home: Path, rng: random.Random
) -> dict[str, Any]:
    log = home / "requests.jsonl"
    os.environ["CONTEXTCLIFF_HOME"] = str(home)  # where the spool of a database is
    spool = (home if place.server else Path(place.ledger).parent) / "_spool"
    entry = {"concurrency": AT_ONCE, "revision": "1", "timeout_s": 20.0}
    told = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM}.get(kind)
    patience_s = 600.0 if told else 1.0
    with unreliable_server(delay_ms=400, log=log) as url:
        whole = Measurement(
            place.ledger, url, _BINS, CALLS // _BINS, entry=entry, patience_s=patience_s
        )
        if kind != "no-reserve":
            whole.open_ledger().close()
            processes = _started(whole, home)
            first = rng.randint(AT_ONCE, CALLS * 3 // 4)
            wait_until(lambda: lines_of(log) >= first)
        with refuse(place):
            if kind == "no-reserve":
                processes = _started(whole, home)
            for process in processes if told else []:
                process.send_signal(told)
            codes = [_ended(process) for process in processes]
        answered = read_log(log)
        lost = sum(text.read_text().count("is lost.") for text in home.glob("writer-*.out"))
        waited = sum(file.read_bytes().count(b"\n") for file in spool.glob("*.jsonl"))
        with whole.open_ledger() as ledger:
            results = {key for (key,) in ledger.read("SELECT call_key FROM results")}
            sound = not verify(ledger).faults and not ledger.spool.files()
        alone = replace(whole, patience_s=60.0, entry={**entry, "concurrency": 3 * AT_ONCE})
        again = alone.start(subprocess.DEVNULL)
        assert again.wait(_ENDS_S) == 0
        with whole.open_ledger() as ledger:
            identity = ledger.read("SELECT identity_hash FROM calls LIMIT 1")[0][0]
    key_of = texts_to_keys(whole.sample(), CALLS, identity)
    asked = Counter(key_of[line["prompt"]] for line in read_log(log))
    before = {key_of[line["prompt"]] for line in answered}
    return {
        "codes": codes,
        "answered": len(before),
        "stored": len(results) - waited,
        "waited": waited,
        "lost": lost,
        "twice": asked.total() - len(asked),
        "next run": asked.total() - len(answered),
        "sound": sound and results <= before,
    }


def _started(measurement: Measurement, home: Path) -> list[subprocess.Popen[str]]:
    started = []
    for number in range(WRITERS):
        with (home / f"writer-{number}.out").open("w") as output:
            started.append(measurement.start(output))
    return started


def _ended(process: subprocess.Popen[str]) -> int | None:
    try:
        return process.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return None


@contextmanager
def _disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A small file system of its own; needs the right to mount one."""
    disk = folder / "disk"
    disk.mkdir()
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
