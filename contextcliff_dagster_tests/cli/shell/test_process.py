"""The process of a command ends at once, with its exit code and with what was registered."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ENDING = """
import atexit, sys, threading
from contextcliff_dagster.cli.shell import end_process, set_up_process
set_up_process()
{before}
atexit.register(print, "registered")
threading.Thread(target=lambda: (started.wait(), print("thread"))).start()
started.set()
sys.stdout.write("unflushed ")
try:
    end_process({code})
except SystemExit:
    print("as Python ends")
    raise
"""


def ended(code: int, before: str = "") -> subprocess.CompletedProcess[str]:
    program = "import threading; started = threading.Event()" + _ENDING
    return subprocess.run(
        [sys.executable, "-c", program.format(code=code, before=before)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 2, 130])
def test_threads_and_registered_functions_end_first_and_output_is_written(code: int) -> None:
    done = ended(code)
    assert done.returncode == code
    assert not done.stderr
    assert {"registered", "thread"} <= set(done.stdout.split())
    assert "unflushed" in done.stdout
    assert "as Python ends" not in done.stdout


def test_a_profiler_gets_the_end_it_waits_for() -> None:
    done = ended(3, "sys.setprofile(lambda *_: None)")
    assert done.returncode == 3
    assert "as Python ends" in done.stdout


def test_a_reader_that_left_changes_no_exit_code() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m contextcliff_dagster.cli --help | true; echo ended"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ended\n"
    assert not done.stderr
