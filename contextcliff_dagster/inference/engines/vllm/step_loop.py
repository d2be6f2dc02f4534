"""vLLM's step loop in a thread of its own: requests go in, pieces of answers come out one by one.

``LLM.generate`` would give nothing until everything has been answered, and fail all of it for one
prompt that is too long. vLLM's engine is made, stepped and shut down by one thread only.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    """A prompt; ``report`` is called with each of vLLM's outputs, or at last with an exception.

    ``asked_at`` is in seconds of `time.monotonic`, the clock of vLLM's own time stamps.
    """

    prompt_ids: list[int]
    sampling: Any
    report: Callable[[Any], None]
    key: str = ""
    asked_at: float = field(default_factory=time.monotonic)


class StepLoop:
    """Steps the engine of the ``LLM`` that ``make`` builds for as long as there is work."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._orders: queue.SimpleQueue[Callable[[Any], Any] | None] = queue.SimpleQueue()
        self._asked: dict[str, Request] = {}
        self._lock = threading.Lock()
        self._ended: BaseException | None = None
        self._numbers = itertools.count()
        self._ready: Future[Any] = Future()
        self._thread = threading.Thread(target=self._work, name="vllm-steps", daemon=True)

    def start(self) -> Future[Any]:
        """Begin to load; the future gives the ``LLM``, or what went wrong."""
        self._thread.start()
        return self._ready

    def ask(self, request: Request) -> None:
        """Queue a request; may be called from any thread."""
        with self._lock:
            if self._ended is None:
                request.key = str(next(self._numbers))
                self._asked[request.key] = request
                self._orders.put(lambda engine: self._add(engine, request))
                return
        request.report(self._ended)

    def give_up(self, request: Request) -> None:
        """Drop a request, whose outputs are not awaited any more; from any thread."""
        self._orders.put(
            lambda engine: self._take(request.key) and engine.abort_request([request.key])
        )

    def stop(self) -> None:
        """Shut vLLM down and wait for that."""
        self._orders.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            model = self._make()
        except BaseException as broken:
            self._end(broken)
            self._ready.set_exception(broken)
            return
        self._ready.set_result(model)
        engine = model.llm_engine
        del model
        error: BaseException = RuntimeError("vLLM was stopped")
        try:
            while self._follow_orders(engine):
                for output in engine.step():
                    key = output.request_id
                    request = self._take(key) if output.finished else self._asked.get(key)
                    if request is not None:
                        request.report(output)
        except BaseException as broken:
            error = broken
        finally:
            self._end(error)
            with suppress(Exception):  # as far as it can be unloaded: another may start here
                from vllm.distributed import cleanup_dist_env_and_memory

                engine.engine_core.shutdown()
                cleanup_dist_env_and_memory()

    def _follow_orders(self, engine: Any) -> bool:
        """Take what is asked for, waiting where there is nothing else to do; False: stop."""
        while True:
            try:
                order = self._orders.get(block=not engine.has_unfinished_requests())
            except queue.Empty:
                return True
            if order is None:
                return False
            order(engine)

    def _add(self, engine: Any, request: Request) -> None:
        from vllm import TokensPrompt

        if request.key not in self._asked:
            return
        try:
            prompt = TokensPrompt(prompt_token_ids=request.prompt_ids)
            engine.add_request(request.key, prompt, request.sampling)
        except Exception as error:  # of this prompt alone: the others go on
            self._take(request.key)
            request.report(error)

    def _take(self, key: str) -> Request | None:
        with self._lock:
            return self._asked.pop(key, None)

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._ended = error
            left = list(self._asked.values())
            self._asked.clear()
        for request in left:
            with suppress(Exception):  # one that cannot be reached must not keep it from the others
                request.report(error)
