"""A function over many numbers, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

Map = Callable[[Callable[[int], Any], Sequence[int]], Iterator[Any]]

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1


@contextmanager
def mapped(jobs: int) -> Iterator[Map]:
    """Yield `map`, here or over ``jobs`` processes, one thread each: the matrices are small."""
    if jobs <= 1:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield partial(pool.map, chunksize=5)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    import ctypes
    import signal

    from threadpoolctl import threadpool_limits

    # Ctrl-C reaches every process of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    # glibc gives large arrays back to the system at once and fetches them again for the next one:
    # a fifth of the time. (Other C libraries have no such switch.)
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
