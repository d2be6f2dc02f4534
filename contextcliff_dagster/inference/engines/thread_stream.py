"""A blocking generator as an asynchronous one: it runs in a worker thread, piece by piece."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor

from contextcliff_dagster.inference.engines.base import Delta


async def stream_from(
    threads: Executor, generate: Callable[[], Iterator[Delta]]
) -> AsyncIterator[Delta]:
    """The pieces as they come; what ``generate`` raises is raised here. Left early, the generator
    ends at its next piece."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[Delta | BaseException | None] = asyncio.Queue()
    given_up = threading.Event()

    def put(piece: Delta | BaseException | None) -> None:
        if not given_up.is_set():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def work() -> None:
        try:
            for delta in generate():
                if given_up.is_set():
                    return
                put(delta)
            put(None)
        except BaseException as error:
            put(error)

    threads.submit(work)
    try:
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        given_up.set()
