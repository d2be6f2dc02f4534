"""Freed memory: how often Python looks for garbage, and returning to the system what allocators
keep for what may come."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
_AT_ONCE_BYTES = 1 << 20
_ALLOCATED = 100_000
"""Containers between two collections of garbage. At Python's own 700 all that was imported is gone
through five times in the seconds of a small run, at 10,000 still twice: 0.5 and 0.2 CPU seconds
more. The peak of its memory is the same, as most of what is made in between stays."""


def collect_garbage_rarely() -> None:
    """From here on, Python looks for garbage in circles less often; never where it is switched off.

    For a process that imports much and keeps it. The setting is the process's.
    """
    if before := gc.get_threshold()[0]:
        gc.set_threshold(max(before, _ALLOCATED))


def return_freed_memory() -> None:
    """Return what Arrow keeps, and the C library in small pieces; a few milliseconds.

    Of a vocabulary that is 30 to 55 MB.
    """
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such thing
        ctypes.CDLL(None).malloc_trim(0)


def lean_allocator() -> None:
    """From here on, the C library's allocator keeps little of what is free: 80 MB less of a run.

    Two arenas for all threads, not eight per core: what is free in one is of no use to another. And
    arrays of a megabyte go back at once: by default the first one that is freed raises that bound
    to its size, up to 32 MB, and later ones leave holes in the heap. The setting is the process's.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 2)
        library.mallopt(_M_MMAP_THRESHOLD, _AT_ONCE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _AT_ONCE_BYTES)


@contextmanager
def lean_arrow() -> Iterator[None]:
    """Inside, Arrow allocates from the system, which gets back at the end what is free by then.

    35 MB less at the peak of a length map. The setting is the process's; another thread that uses
    Arrow meanwhile is slower, not wrong.
    """
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        return_freed_memory()
