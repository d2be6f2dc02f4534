"""A second core: pure functions called in another process, with the same answers.

A command that will have work for it begins it first (`begin`), so that it imports what it needs
while the command reads. Without one, everything is called in this process. It reads from a pipe
that closes with this process, so it never outlives it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
                # -P: no file of the current folder is imported in a library's place.
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
                assert process.stdin
                assert process.stdout
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
    left = iter(range(len(tasks)))  # either thread takes the next
    results: dict[int, Result] = {}

    def work(run: Callable[..., Result]) -> None:
        try:
            for at in left:
                results[at] = run(*tasks[at])
        finally:
            list(left)  # after an error the other thread is not to go on for nothing

    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(work, partial(call, function))
        work(function)
        there.result()
    return [results[at] for at in range(len(tasks))]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # bytes that were not sent
                pipe.close()


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
