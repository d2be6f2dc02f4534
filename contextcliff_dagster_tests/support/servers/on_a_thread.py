"""Small servers next to the test that asks them: a process of their own would cost more than it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def on_a_thread(handle: Handle, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve on a thread with an event loop of its own; yields the base URL.

    Requests that are still open at the end are cut off.
    """
    listening: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def serve() -> None:
        ended = asyncio.Event()
        server = await asyncio.start_server(handle, "127.0.0.1", port, limit=1 << 24, ssl=tls)
        bound = server.sockets[0].getsockname()[1]
        listening.set_result((asyncio.get_running_loop(), ended, bound))
        await ended.wait()
        server.close()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if listening.done():
                raise
            listening.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    loop, ended, bound = listening.result()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{bound}/v1"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
