"""The process beside gives the answer of the library in place, and is never needed."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from contextcliff_dagster.analysis import change_points as module
from contextcliff_dagster.analysis.change_points import change_points, import_beside

STAIRS = np.repeat([0.9, 0.5, 0.1], 20) + np.tile([0.01, -0.01], 30)


@pytest.fixture
def _alone() -> None:
    while module._beside:
        module._end(module._beside.pop())


@pytest.mark.usefixtures("_alone")
def test_a_process_beside_answers_like_the_library_in_place() -> None:
    in_place = change_points(STAIRS, 0.05)
    assert in_place == [20, 40, 60]
    import_beside()
    import_beside()
    assert len(module._beside) == 1
    assert change_points(STAIRS, 0.05) == in_place
    assert change_points(np.full(30, 0.5), 0.05) == [30]
    assert len(module._beside) == 1


@pytest.mark.usefixtures("_alone")
def test_a_killed_process_costs_nothing_but_time() -> None:
    import_beside()
    process = module._beside[-1]
    os.kill(process.pid, signals.SIGKILL)
    process.wait()
    assert change_points(STAIRS, 0.05) == [20, 40, 60]
    assert not module._beside


def test_it_ends_with_the_process_that_began_it() -> None:
    begins = (
        "from contextcliff_dagster.analysis import change_points as c\n"
        "c.import_beside(); print(c._beside[0].pid, flush=True); import os; os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", begins], capture_output=True, text=True)
    beside = int(done.stdout)
    # The closed pipe ends it once it reads: no child of this process, so its end is polled.
    for _ in range(3_000):
        try:
            os.kill(beside, 0)
        except ProcessLookupError:
            return
        if _is_zombie(beside):
            return
        time.sleep(0.01)
    pytest.fail(f"process {beside} outlived the one that began it")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
