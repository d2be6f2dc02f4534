"""Looking at the processes that a process has started."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable


def children(pid: int | None = None) -> list[int]:
    """Process ids of the living children of a process, this one if none is named."""
    ask = ["ps", "-ww", "-e", "-o", "pid=,ppid=,stat=,args="]
    listed = subprocess.run(ask, capture_output=True)
    found = []
    for line in listed.stdout.decode("utf-8", "replace").splitlines():
        child, parent, state, *command = line.split(None, 3)
        words = " ".join(command)
        # A fork server of other tests names the modules that it has imported.
        ours = "extraction.worker" in words and "forkserver" not in words
        if int(parent) == (pid or os.getpid()) and not state.startswith("Z") and ours:
            found.append(int(child))
    return found


def busy() -> list[int]:
    """Those children that have worked for a second: they are in the middle of a file."""

    def worked(pid: int) -> bool:
        done = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True)
        return bool(done.stdout.strip().strip("0:"))

    return [child for child in children() if worked(child)]


def _state(pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    return _state(pid)[:1] not in ("", "Z")


def sleeps(pid: int) -> bool:
    """Whether a process waits for something, such as what is typed."""
    return _state(pid).startswith("S")


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something that can be observed. Raises TimeoutError."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.02)
