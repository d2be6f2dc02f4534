"""The helper process gives the same answers as the library, and is never required."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from contextcliff_dagster.analysis.statistics import helper_process
from contextcliff_dagster.analysis.statistics.change_points import change_points
from contextcliff_dagster_tests.support.child_processes import wait_until

STAIRS = np.repeat([0.9, 0.5, 0.1], 20) + np.tile([0.01, -0.01], 30)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    _end_all()
    yield
    _end_all()


def _end_all() -> None:
    while helper_process._running:
        helper_process._end(helper_process._running.pop())


def test_change_points_are_the_same_there_and_here() -> None:
    here = change_points(STAIRS, 0.05)
    assert here == [20, 40, 60]
    helper_process.begin("ruptures")
    helper_process.begin("ruptures")
    assert len(helper_process._running) == 1
    assert change_points(STAIRS, 0.05) == here
    assert change_points(np.full(30, 0.5), 0.05) == [30]
    assert len(helper_process._running) == 1


def test_many_calls_come_back_in_order_and_some_were_made_there(tmp_path: Path) -> None:
    tasks = [(number, os.getpid(), None) for number in range(200)]
    assert helper_process.call_all(process_of, tasks) == [
        (number, os.getpid()) for number in range(200)
    ]
    helper_process.begin(__name__)
    helper_process.call(process_of, 0, os.getpid(), None)  # it has imported what it needs
    tasks = [(number, os.getpid(), tmp_path / "done there") for number in range(200)]
    results = helper_process.call_all(process_of, tasks)
    assert [number for number, _ in results] == list(range(200))
    assert {process for _, process in results} == {os.getpid(), helper_process._running[0].pid}


def test_a_killed_process_costs_nothing_but_time() -> None:
    helper_process.begin("ruptures")
    process = helper_process._running[-1]
    os.kill(process.pid, signals.SIGKILL)
    process.wait()
    assert change_points(STAIRS, 0.05) == [20, 40, 60]
    assert not helper_process._running
    helper_process.begin()
    os.kill(helper_process._running[-1].pid, signals.SIGKILL)
    tasks = [(number, os.getpid(), None) for number in (1, 2)]
    assert helper_process.call_all(process_of, tasks) == [
        (1, os.getpid()),
        (2, os.getpid()),
    ]


def test_what_fails_there_fails_here_with_its_own_words() -> None:
    helper_process.begin()
    with pytest.raises(ValueError, match="invalid literal for int"):
        helper_process.call(int, "seven")


def test_what_a_function_prints_is_no_answer() -> None:
    helper_process.begin("this", __name__)  # `this` prints as it is imported
    assert helper_process.call(loud, 7) == 7
    assert helper_process.call(loud, 8) == 8
    assert helper_process.call(os.getpid) == helper_process._running[0].pid


def test_modules_of_the_folder_one_stands_in_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ruptures.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    helper_process.begin("ruptures")
    assert helper_process.call(os.getpid) == helper_process._running[0].pid


def test_a_fault_leaves_the_other_tasks_undone() -> None:
    helper_process.begin(__name__)
    assert helper_process.call(os.getpid) == helper_process._running[0].pid
    started = time.perf_counter()
    with pytest.raises(ZeroDivisionError):
        helper_process.call_all(slow_inverse, [(0,), *[(number,) for number in range(1, 400)]])
    assert time.perf_counter() - started < 20, "of 200 s and more"


def test_it_ends_with_the_process_that_began_it() -> None:
    begins = (
        "from contextcliff_dagster.analysis.statistics import helper_process as b\n"
        "b.begin(); print(b._running[0].pid, flush=True); import os; os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", begins], capture_output=True, text=True)
    process = int(done.stdout)
    # The closed pipe ends it once it reads: no child of this process, so its end is polled.
    for _ in range(3_000):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        if _is_zombie(process):
            return
        time.sleep(0.01)
    pytest.fail(f"process {process} outlived the one that began it")


def process_of(number: int, ours: int, done_there: Path | None) -> tuple[int, int]:
    """The number, and who was asked; process ``ours`` waits until the other has done one."""
    if done_there is not None and os.getpid() == ours:
        wait_until(done_there.exists)
    elif done_there is not None:
        done_there.touch()
    return number, os.getpid()


def slow_inverse(number: int) -> float:
    """Its inverse, after a second; of 0 at once."""
    inverse = 1 / number
    time.sleep(1.0)
    return inverse


def loud(number: int) -> int:
    """The number, also in print."""
    print(number, flush=True)
    return number


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
