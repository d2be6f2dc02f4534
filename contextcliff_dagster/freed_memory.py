"""Memory that is free again, given back to the system: allocators keep it for what may come."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def return_freed_memory() -> None:
    """Return what the C library keeps in small pieces; a few milliseconds.

    Of a vocabulary that is 30 to 55 MB.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library has no such thing
        ctypes.CDLL(None).malloc_trim(0)


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
