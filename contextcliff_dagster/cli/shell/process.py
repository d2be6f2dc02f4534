"""The process of a command, from the shell to its end: what it is set to, and how it is left."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

from contextcliff_dagster.freed_memory import collect_garbage_rarely, lean_allocator


def set_up_process() -> None:
    """Set what suits a process that imports much and lives for one command."""
    collect_garbage_rarely()
    lean_allocator()


def end_process(code: int) -> NoReturn:
    """Exit with ``code`` after what was registered for the end, without taking modules apart.

    Python gives back every object one by one before the system takes back all of them at once: 0.7
    CPU seconds with what a run has imported. A debugger or a profiler gets the end it waits for.
    """
    try:
        at_end = threading._shutdown, atexit._run_exitfuncs  # type: ignore[attr-defined]
    except AttributeError:
        sys.exit(code)
    if sys.gettrace() or sys.getprofile() or sys.flags.interactive:
        sys.exit(code)
    for step in at_end:
        step()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        sys.exit(code)  # as Python says it
    os._exit(code)
