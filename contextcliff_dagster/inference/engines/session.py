"""Engines started from a model's entry, with an event loop of their own, for code on any thread.

The loop lives in a thread, so that notebooks and Dagster (whose threads may have a loop already)
can measure, and so that Ctrl-C reaches the waiting caller and not the middle of a call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any, TypeVar

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Engine
from contextcliff_dagster.inference.models.engine_table import engine_spec
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry


def open_engine(entry: ModelEntry) -> Engine:
    """The engine of ``entry``, not yet started; EngineError where its software is missing."""
    engine: Engine = _resolved(engine_spec(entry.engine).load)(entry)
    return engine


def declared_identity(entry: ModelEntry) -> dict[str, Any]:
    """The serving identity as known without a start; raises EngineError like `open_engine`."""
    return dict(_resolved(engine_spec(entry.engine).declared_identity)(entry))


def _resolved(target: str | Callable[[ModelEntry], Any]) -> Callable[[ModelEntry], Any]:
    return resolve_name(target) if isinstance(target, str) else target


T = TypeVar("T")


class EngineSession:
    """Context manager: the engine of ``entry`` is started on enter and stopped on exit.

    Raises EngineError on enter, where the engine cannot start.
    """

    def __init__(self, entry: ModelEntry, engine: Engine | None = None) -> None:
        self.entry = entry
        self.engine = engine or open_engine(entry)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="engine-loop", daemon=True)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        stopped = False
        while not stopped:
            # These two leave the loop when a task raises them, and its waiters would wait for ever.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
                stopped = True

    def __enter__(self) -> EngineSession:
        self._thread.start()
        try:
            self.submit(self.engine.start()).result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> Identity:
        """The serving identity."""
        return self.engine.identity()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run ``work`` on the engine's loop; an engine that exits fails the future as others do."""
        return asyncio.run_coroutine_threadsafe(self._without_exit(work), self.loop)

    async def _without_exit(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except SystemExit as error:
            raise EngineError(
                f"The engine of model {self.entry.name!r} tried to end the program (exit code "
                f"{error.code}); what is measured is kept, so repair it and run the same command."
            ) from error

    def close(self) -> None:
        """Stop the engine and its loop."""
        if self.loop.is_closed():
            return
        with suppress(Exception):
            self.submit(self.engine.stop()).result(timeout=30)
        with suppress(Exception):
            self.submit(_cancel_rest()).result(timeout=10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        if not self.loop.is_running():
            self.loop.close()


async def _cancel_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
