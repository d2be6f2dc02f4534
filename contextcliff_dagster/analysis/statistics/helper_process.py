"""A second core: pure functions called in a process beside this one, with the same answers.

A command that will have work for it says so when it begins (`begin`), so that the process imports
what it needs while the command reads. Where none was begun, or it is gone, everything is called in
place. The process reads from a pipe that closes with this one, so it never outlives it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar

_lock = Lock()
_running: list[subprocess.Popen[bytes]] = []

Result = TypeVar("Result")


def begin(*modules: str) -> None:
    """Begin the process, unless one runs already; it imports ``modules`` at once."""
    with _lock:
        if _running:
            return
        try:
            process = subprocess.Popen(
                # Nothing of the folder one stands in is imported in a library's place.
                [sys.executable, "-P", "-m", __name__, *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # no process to be had
            return
        _running.append(process)
    atexit.register(_end, process)


def call(function: Callable[..., Result], *args: Any) -> Result:
    """``function(*args)``: there if a process runs, else here.

    Args:
        function: a module's own, without side effects; ``args`` and its result can be pickled.
    """
    with _lock:
        while _running:
            process = _running[-1]
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                pickle.dump((function, args), process.stdin)
                process.stdin.flush()
                answer: Result = pickle.load(process.stdout)
            except Exception:  # whatever it was, it happens again in place, or not at all
                _end(_running.pop())
            else:
                return answer
    return function(*args)


def call_all(function: Callable[..., Result], tasks: Sequence[Sequence[Any]]) -> list[Result]:
    """``function`` of each of ``tasks``, in their order: some there, the others here meanwhile."""
    if not _running:
        return [function(*task) for task in tasks]
    left = deque(range(len(tasks)))
    found: dict[int, Result] = {}

    def work(take: Callable[[], int], run: Callable[..., Result]) -> None:
        try:
            while (at := _taken(take)) is not None:
                found[at] = run(*tasks[at])
        except BaseException:  # the other is not to go on for nothing
            left.clear()
            raise

    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(work, left.pop, partial(call, function))
        work(left.popleft, function)
        there.result()
    return [found[at] for at in range(len(tasks))]


def _taken(take: Callable[[], int]) -> int | None:
    try:
        return take()
    except IndexError:  # all is taken
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not sent is not missed
                continue


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for name in sys.argv[1:]:
        import_module(name)
    while True:
        try:
            function, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(function(*args), answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
