"""Ctrl-C, SIGTERM and a closed terminal end a run alike; each has its exit code."""

from __future__ import annotations

import logging
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contextcliff_dagster.cli.display.output import dagster_log
from contextcliff_dagster.cli.errors import DONE, INTERRUPTED, guarded
from contextcliff_dagster.cli.shell import ended_by_signals
from contextcliff_dagster.inference.execution.measure import deferred_interrupts
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.cli.commands.test_profile import (
    PLANNED,
    QUICK,
    models_yaml,
    received,
)
from contextcliff_dagster_tests.support.held_calls import Gate
from contextcliff_dagster_tests.support.records.calls import reference_server
from contextcliff_dagster_tests.support.terminal import COMMAND, call

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    """As a process has them that was started by a shell."""
    before = {number: signal.getsignal(number) for number in CODES}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("deferred", [False, True])
def test_each_signal_interrupts_and_is_named_by_the_exit_code(
    number: signal.Signals, deferred: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    went_on = []

    def command() -> None:
        if not deferred:
            signal.raise_signal(number)
        with deferred_interrupts() as raise_interrupt:
            signal.raise_signal(number)
            went_on.append("to the end of what cannot be interrupted")
            raise_interrupt()
        went_on.append("too far")

    with ended_by_signals() as first:
        assert guarded(command, debug=False, resume="contextcliff x") == INTERRUPTED
        assert 128 + first() == CODES[number]
    assert len(went_on) == deferred
    assert capsys.readouterr().err == (
        "Interrupted: what is finished is kept; go on with `contextcliff x`.\n"
    )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_wait(number: signal.Signals) -> None:
    with ended_by_signals(), pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(number)
        signal.raise_signal(number)
        raise AssertionError("it waited")


def test_a_signal_that_is_ignored_from_the_start_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

    def command() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGHUP)

    with ended_by_signals():
        assert guarded(command, debug=False, resume="") == DONE
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_ctrl_c_while_dagsters_database_closes_prints_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlalchemy

    def interrupted(connection: object) -> None:
        raise KeyboardInterrupt

    engine = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path}/x.db", poolclass=sqlalchemy.pool.NullPool
    )
    # As in a process of its own: pytest has a handler on the root logger, which shows what is left.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with dagster_log(shown=False), pytest.raises(KeyboardInterrupt):
        connection = engine.connect()
        monkeypatch.setattr(engine.dialect, "do_close", interrupted)
        connection.close()
    assert capsys.readouterr().err == ""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *args: str, env: dict[str, str], nohup: bool = False) -> None:
        self.text = b""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            if nohup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.execve(sys.executable, [*COMMAND, *args], {**os.environ, **env, "COLUMNS": "200"})

    def read_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not ready():
            assert time.monotonic() < deadline, self.text
            if select.select([self._fd], [], [], 0.05)[0]:
                self._read()

    def _read(self) -> bool:
        with suppress(OSError):  # the other end is closed
            data = os.read(self._fd, 1 << 16)
            self.text += data
            return bool(data)
        return False

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def close(self) -> None:
        os.close(self._fd)

    def ended(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_on_a_terminal_prints_our_sentence_and_nothing_else(tmp_path: Path) -> None:
    log, gate = tmp_path / "requests.jsonl", Gate(tmp_path / "gate")
    gate.let(4)
    with reference_server(log=log, gate=gate) as url:
        env = models_yaml(tmp_path, url)
        terminal = Terminal("profile", *QUICK, "--model", "served", env=env)
        terminal.read_until(lambda: received(log).total() >= 6)
        terminal.type(b"\x03")
        gate.let(6)
        assert terminal.ended() == 130
    _, _, after = terminal.text.decode().partition("^C")
    assert "Traceback" not in after
    lines = [line for line in after.replace("\x1b[2K", "\n").splitlines() if line.strip()]
    rest = [line for line in lines if "calls · " not in line and not line.startswith("\x1b")]
    assert len(rest) == 1, rest
    assert rest[0].startswith("Interrupted: ")
    assert "contextcliff profile quick --samples-per-bin 4 --model served" in rest[0]


@pytest.mark.parametrize("nohup", [False, True])
def test_a_run_whose_terminal_is_closed_ends_cleanly_or_under_nohup_goes_on(
    tmp_path: Path, nohup: bool, contextcliff_home: Path
) -> None:
    log, gate = tmp_path / "requests.jsonl", Gate(tmp_path / "gate")
    gate.let(4)
    with reference_server(log=log, gate=gate) as url:
        env = models_yaml(tmp_path, url)
        terminal = Terminal("profile", *QUICK, "--model", "served", env=env, nohup=nohup)
        terminal.read_until(lambda: received(log).total() >= 6)
        terminal.close()
        gate.open()
        assert terminal.ended() == (0 if nohup else 129)
        with Ledger.open(Store(contextcliff_home).ledger) as ledger:
            assert ledger.read("SELECT * FROM claims") == []
            assert ledger.read("SELECT * FROM attempts WHERE ended_at IS NULL") == []
            kept = ledger.stats()["answers"]
        assert (kept == PLANNED) == nohup
        again = call("profile", *QUICK, "--model", "served", env=env)
    assert again.code == 0
    assert received(log).total() <= PLANNED + 2
    assert len(received(log)) == PLANNED
