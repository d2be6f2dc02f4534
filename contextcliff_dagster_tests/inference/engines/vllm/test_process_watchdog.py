"""What the guard started ends with whoever asked for it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contextcliff_dagster.inference.engines.vllm import process_watchdog

# A program that has a child of its own, and says so; neither of them minds SIGTERM if told so.
PROGRAM = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1] + ".part", "w").write(str(below.pid))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""
ASKING = """
import subprocess, sys, time
guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(600)
"""
GUARD = (sys.executable, process_watchdog.__file__)
RUN_PROGRAM = (sys.executable, "-c", PROGRAM)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + 120
    while any(map(runs, pids)):
        assert time.monotonic() < deadline, [pid for pid in pids if runs(pid)]
        time.sleep(0.01)


def start(tmp_path: Path, *more: str, grace: str = "5") -> tuple[subprocess.Popen[bytes], int, int]:
    """The guard, the program's process id, and that of the program's own child."""
    said = tmp_path / "below"
    guard = subprocess.Popen(
        [*GUARD, grace, *RUN_PROGRAM, str(said), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert guard.stdout is not None
    program = int(guard.stdout.readline())
    return guard, program, below_of(said)


def below_of(said: Path) -> int:
    deadline = time.monotonic() + 120
    while not said.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(said.read_text())


@pytest.mark.parametrize("more", [(), ("stubborn",)])
def test_closing_its_stdin_ends_all(tmp_path: Path, more: tuple[str, ...]) -> None:
    guard, program, below = start(tmp_path, *more, grace="0.2")
    assert guard.stdin is not None
    guard.stdin.close()
    wait_until_gone(program, below)
    assert guard.wait(120) == -signal.SIGKILL


def test_a_program_that_dies_takes_what_it_started_along(tmp_path: Path) -> None:
    guard, program, below = start(tmp_path)
    os.kill(program, signal.SIGKILL)
    wait_until_gone(program, below)
    guard.wait(120)


def test_whoever_asked_may_be_killed(tmp_path: Path) -> None:
    said = tmp_path / "below"
    asking = subprocess.Popen(
        [sys.executable, "-c", ASKING, *GUARD, "5", *RUN_PROGRAM, str(said)],
        stdout=subprocess.PIPE,
    )
    assert asking.stdout is not None
    program = int(asking.stdout.readline())
    below = below_of(said)
    asking.kill()
    asking.wait()
    wait_until_gone(program, below)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel to tell of a parent's death")
def test_the_guard_itself_may_be_killed(tmp_path: Path) -> None:
    guard, program, below = start(tmp_path)
    guard.kill()
    guard.wait()
    wait_until_gone(program)
    os.kill(below, signal.SIGKILL)
