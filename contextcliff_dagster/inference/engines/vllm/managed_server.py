"""A vLLM server that this engine starts, watches, starts again after a crash, and stops.

Calls are those of any OpenAI-compatible endpoint. One that a crash interrupts is a TransportError,
tried again like others: the answers are those of an undisturbed run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    RejectedError,
    TransportError,
)
from contextcliff_dagster.inference.engines.cache_figures import with_cache_figures
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect
from contextcliff_dagster.inference.engines.vllm.engine_args import (
    cache_token_bytes,
    declared_vllm_identity,
    local_config,
)
from contextcliff_dagster.inference.engines.vllm.server_process import VllmProcess
from contextcliff_dagster.inference.models.identity import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry, Quirks
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.retry import Backoff, retry


class VllmServerEngine(NoEmbeddings):
    """See `base.Engine`."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._declared = declared_vllm_identity(entry)
        self._token_bytes = cache_token_bytes(entry, local_config(entry), {})
        self._process = VllmProcess(entry)
        self._remote: OpenAIEngine | None = None
        self._window: int | None = None
        self._restarts = 0
        self._broken = False
        self._lock = asyncio.Lock()

    @property
    def window_tokens(self) -> int | None:
        """What the server states, which is the entry's window where it has one."""
        return self.identity().window_tokens

    async def start(self) -> None:
        """Start the server: half a minute on a CPU, minutes for large weights."""
        async with self._lock:
            await self._start()

    async def _start(self) -> OpenAIEngine:
        await self._process.start()
        served: dict[str, Any] = {
            "engine": "openai",
            "base_url": f"{self._process.address}/v1",
            "quirks": Quirks(),
            "api_key_env": None,
            "headers_env": {},
        }
        entry = self._entry.model_copy(update=served)
        remote = self._remote = OpenAIEngine(entry, own=Dialect("vllm"))
        await remote.start()
        self._window, self._broken = remote.window_tokens, False
        return remote

    async def stop(self) -> None:
        """End the server."""
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            await remote.stop()
        await self._process.stop()

    def identity(self) -> Identity:
        """As in process; where it listens is no part of it."""
        stated = {} if self._window is None else {"server_max_model_len": self._window}
        return Identity({**self._declared, **stated})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Exact: the server's own tokenizer and chat template."""
        backoff = Backoff(attempts=self._entry.max_attempts, deadline_s=self._entry.longest_call_s)
        try:
            return await retry(lambda: self._count(prompt), backoff)
        except (TransportError, RejectedError) as error:
            raise EngineError(
                f"Model {self._entry.name!r}: vLLM cannot count a prompt ({error}); its chat "
                "template may not know these turns, so try another prompt mode."
            ) from error

    async def _count(self, prompt: Prompt) -> PromptCount | None:
        remote = await self._ready()
        assert remote.server_count is not None
        try:
            return await remote.server_count.once(prompt)
        except TransportError as error:
            await self._raise_if_dead(remote, error)
            raise

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Greedy tokens as they come.

        Raises:
            TransportError: also where the server died meanwhile; the next call starts it again.
            EngineError: it died more often than the entry allows.
        """
        remote = await self._ready()
        try:
            pieces = with_cache_figures(remote.stream(prompt, decoding), self._token_bytes)
            async with aclosing(pieces) as stream:  # type: ignore[type-var]
                async for delta in stream:
                    yield delta
        except TransportError as error:
            await self._raise_if_dead(remote, error)
            raise

    async def _raise_if_dead(self, remote: OpenAIEngine, error: TransportError) -> None:
        """Raise TransportError from ``error`` where the server of ``remote`` has died.

        One that is about to end answers 500 before it answers nothing.
        """
        if remote is not self._remote or not await self._process.healthy():
            self._broken = self._broken or remote is self._remote
            raise TransportError(
                "server_died", f"the vLLM server died ({self._process.last_words(1)})"
            ) from error

    async def _ready(self) -> OpenAIEngine:
        """The engine of a server that lives, started again where it does not."""
        async with self._lock:
            if self._remote is not None and not self._broken and self._process.alive:
                return self._remote
            if self._restarts >= self._entry.vllm.restarts:
                raise EngineError(
                    f"Model {self._entry.name!r}: its vLLM server died, and was started again "
                    f"{self._restarts} times already (`vllm: restarts`); everything measured is "
                    "kept, so give it more memory or a smaller window and run the same command to "
                    f"go on. Its last messages: {self._process.last_words()}"
                )
            self._restarts += 1
            await self._stop()
            return await self._start()
