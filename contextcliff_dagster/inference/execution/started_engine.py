"""The started engine of a model, which may stay for the next model that loads the same.

KV policies and budgets of one model differ in nothing that is loaded: what takes seconds to start
serves all of them, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster.inference.devices.process_lease import leased
from contextcliff_dagster.inference.engines.base import Engine
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.interrupts import RunControl
from contextcliff_dagster.inference.models.models_file import ModelEntry


class _Kept:
    """The engine that was started last, on its devices; none after `end`."""

    def __init__(self) -> None:
        self._session: EngineSession | None = None
        self._gpus: Gpus = 0
        self._held = ExitStack()

    def hand_over(self, entry: ModelEntry) -> EngineSession | None:
        """The session, now of ``entry``; None, and ended, where that loads something else."""
        session = self._session
        if session is None or entry.gpus_wanted != self._gpus:
            self.end()
            return None
        switch: Callable[[ModelEntry], bool] | None = getattr(session.engine, "switch_to", None)
        if switch is None or not switch(entry):
            self.end()
            return None
        session.entry = entry
        return session

    def keep(self, session: EngineSession, held: ExitStack) -> None:
        self._session, self._gpus, self._held = session, session.entry.gpus_wanted, held

    def end(self) -> None:
        """Stop the engine, then let its devices go."""
        self._session = None
        self._held.close()


_kept: ContextVar[_Kept | None] = ContextVar("kept_engine", default=None)


@contextmanager
def engines_kept() -> Iterator[None]:
    """Within, on this thread, an engine serves models in a row that differ in nothing it loads.

    Engines say so by a method ``switch_to(entry) -> bool``; all others are started anew. An engine
    and its devices are kept until a model needs another, an error, or the end.
    """
    kept = _Kept()
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        kept.end()


@contextmanager
def started_engine(
    entry: ModelEntry, purpose: str, control: RunControl, engine: Engine | None = None
) -> Iterator[EngineSession]:
    """The engine of ``entry`` on its devices; ``engine`` is used instead of its own.

    Raises:
        EngineError: it cannot start, or the machine has not the devices.
        WaitStopped: the run ended while devices were waited for.
    """
    kept = _kept.get() if engine is None else None
    session = kept.hand_over(entry) if kept is not None else None
    if session is not None:
        try:
            yield session
        except BaseException:
            assert kept is not None
            kept.end()
            raise
        return
    with ExitStack() as held:
        # Leased before the engine is made: CUDA reads what it may see when it is first loaded.
        held.enter_context(
            leased(
                entry.gpus_wanted,
                purpose,
                on_wait=control.on_wait,
                should_stop=control.must_end,
            )
        )
        session = held.enter_context(EngineSession(entry, engine))
        yield session
        if kept is not None and hasattr(session.engine, "switch_to"):
            kept.keep(session, held.pop_all())
