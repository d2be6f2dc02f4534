"""How far a step has come that sends no call: files that were read, documents that were counted.

A room reports; who shows it listens. Without a listener, nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, int, "int | None"], None]

_listeners: list[Listener] = []


def report_step(name: str, done: int, total: int | None = None) -> None:
    """Say that ``done`` of ``total`` (None: not known) are done in the step called ``name``."""
    for listener in _listeners:
        listener(name, done, total)


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    """Within, ``listener`` gets what `report_step` is given, in the thread that gives it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
