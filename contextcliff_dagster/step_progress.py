"""Progress of steps that make no calls, such as reading files or counting documents.

Packages report progress and displays listen. Without a listener, reports are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, int, "int | None"], None]

_listeners: list[Listener] = []


def report_step(name: str, done: int = 0, total: int | None = None) -> None:
    """Report that ``done`` of ``total`` (None: unknown) items of the step ``name`` are done, or,
    without both, that it begins. Steps that are reported next may be parts of it."""
    for listener in reversed(_listeners):  # a display within another gives it way
        listener(name, done, total)


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    """Pass every report within the block to ``listener``, in the reporting thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
