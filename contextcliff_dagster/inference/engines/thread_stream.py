"""Generated tokens as an asynchronous stream of text, computed in a worker thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Executor

from contextcliff_dagster.inference.engines.base import Delta, Usage


def text_pieces(
    tokens: Iterable[int], decode: Callable[[list[int]], str], prompt_tokens: int, limit: int
) -> Iterator[Delta]:
    """The text of ``tokens`` piece by piece; the last piece has finish reason and usage.

    ``limit``: the most tokens that were asked for, which ends an answer of so many by ``length``.
    """
    read: list[int] = []
    shown = ""
    for token in tokens:
        read.append(token)
        text = decode(read)
        # A character may span tokens; its bytes are held back until they are whole.
        if not text.endswith("\ufffd"):
            yield Delta(text[len(shown) :], at=time.perf_counter())
            shown = text
    yield Delta(
        decode(read)[len(shown) :],
        finish_reason="length" if len(read) >= limit else "stop",
        usage=Usage(prompt_tokens, completion_tokens=len(read), cached_tokens=0),
        at=time.perf_counter(),
    )


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
