"""A vLLM server that this engine starts, monitors, restarts after a crash, and stops.

Calls are those of any OpenAI-compatible endpoint. A call that a crash interrupts raises a
TransportError and is retried, so the answers match those of an undisturbed run.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.leases import lease_descriptors
from contextcliff_dagster.inference.engines.attention import with_cache_figures
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Delta,
    NoEmbeddings,
    PromptCount,
    RejectedError,
    TransportError,
    last_words,
)
from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect
from contextcliff_dagster.inference.engines.vllm import process_watchdog
from contextcliff_dagster.inference.engines.vllm.engine_args import (
    cache_token_bytes,
    declared_vllm_identity,
    engine_args,
    environment,
    local_config,
    refused_cache_type,
    vllm_version,
)
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry, Quirks
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.retry import Backoff, retry

SHUTDOWN_SECONDS = 10
HEALTH_SECONDS = 10.0
_POLL_SECONDS = 0.2
_PORT_ATTEMPTS = 3


class VllmProcess:
    """The process ``python -m vllm.entrypoints.openai.api_server`` for one model."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: tempfile._TemporaryFileWrapper[bytes] | None = None
        self.pid: int | None = None
        self.address = ""

    async def start(self) -> None:
        """Start it and wait until it answers. Raises EngineError with the end of its log."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            await self._spawn(port)
            try:
                await self._until_healthy()
                return
            except EngineError:
                await self.stop()
                # Another process may have taken the port meanwhile.
                if attempt == _PORT_ATTEMPTS or "address already in use" not in self.last_words(50):
                    raise
            except BaseException:
                await self.stop()
                raise

    async def _spawn(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._log = log = tempfile.NamedTemporaryFile(prefix="vllm-", suffix=".log")  # noqa: SIM115
        watchdog = [sys.executable, process_watchdog.__file__, str(SHUTDOWN_SECONDS)]
        version = vllm_version(self._entry.name)
        # Our settings are defaults: the user's settings for vLLM take precedence.
        env = {**environment(version, in_process=False), **os.environ, "PYTHONUNBUFFERED": "1"}
        self._guard = subprocess.Popen(
            [*watchdog, *server_command(self._entry, port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=env,
            pass_fds=lease_descriptors(),
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        with suppress(ValueError):
            self.pid = int(await asyncio.to_thread(self._guard.stdout.readline))

    async def _until_healthy(self) -> None:
        give_up = time.monotonic() + self._entry.vllm.start_timeout_s
        while not await self.healthy():
            why = ""
            if not self.alive:
                why = "ended before it was ready"
            elif time.monotonic() > give_up:
                why = f"was not ready after {self._entry.vllm.start_timeout_s:g} s"
            if why:
                raise EngineError(
                    f"Model {self._entry.name!r}: its vLLM server {why}; correct its entry in "
                    f"models.yaml{refused_cache_type(self._entry)}. Its last messages: "
                    f"{self.last_words()}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def alive(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    async def healthy(self) -> bool:
        """Return whether the process runs and answers, and its engine is alive."""
        from aiohttp import ClientError

        if not self.alive:
            return False
        endpoint = Endpoint(self.address, {}, timeout_s=HEALTH_SECONDS, connections=1, direct=True)
        with suppress(ClientError, OSError):  # a TimeoutError is an OSError
            async with endpoint:
                return (await endpoint.ask("/health", within_s=HEALTH_SECONDS)).status == 200
        return False

    def last_words(self, lines: int = 4) -> str:
        """Return the last lines of its log that have text, joined and without secrets."""
        if self._log is None:
            return "nothing"
        return last_words(Path(self._log.name), lines)

    async def stop(self) -> None:
        """End the process and all processes that it started; calling it twice is safe."""
        guard, self._guard, self.pid = self._guard, None, None
        if guard is None:
            return
        assert guard.stdin is not None
        assert guard.stdout is not None
        with suppress(OSError):
            guard.stdin.close()
        await asyncio.to_thread(guard.wait)
        guard.stdout.close()


def server_command(entry: ModelEntry, port: int) -> list[str]:
    """Return the command line; ``engine_args`` become options of the same names."""
    served = {
        "host": "127.0.0.1",
        "port": port,
        "served_model_name": entry.model_id,
        "allowed_origins": ["http://127.0.0.1"],  # blocks pages in a browser
        "disable_uvicorn_access_log": True,
        "enable_prompt_tokens_details": True,
        "enable_per_request_metrics": True,
        "shutdown_timeout": SHUTDOWN_SECONDS - 2,
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in {**engine_args(entry), **served}.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            text = json.dumps(value) if isinstance(value, dict | list) else str(value)
            command += [f"--{option}", text]
    return command


class VllmServerEngine(NoEmbeddings):
    """An engine (see `base.Engine`) that calls a vLLM server of its own."""

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
        """The window that the server reports, which is the entry's if the entry has one."""
        return self.identity().window_tokens

    async def start(self) -> None:
        """Start the server, which takes half a minute on a CPU, and minutes for large weights."""
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
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        remote, self._remote = self._remote, None
        if remote is not None:
            await remote.stop()
        await self._process.stop()

    def identity(self) -> Identity:
        """Return the same identity as for vLLM in this process, without the address."""
        window = {} if self._window is None else {"server_max_model_len": self._window}
        return Identity({**self._declared, **window})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        backoff = Backoff(attempts=self._entry.max_attempts, deadline_s=self._entry.longest_call_s)
        try:
            return await retry(lambda: self._count(prompt), backoff)
        except (TransportError, RejectedError) as error:
            raise EngineError(
                f"Model {self._entry.name!r}: vLLM cannot count a prompt ({error}); its chat "
                "template may not support these turns, so try another prompt mode."
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
        """Raise TransportError from ``error`` if the server of ``remote`` has died.

        A dying server answers 500 before it stops answering.
        """
        if remote is not self._remote or not await self._process.healthy():
            self._broken = self._broken or remote is self._remote
            raise TransportError(
                "server_died", f"the vLLM server died ({self._process.last_words(1)})"
            ) from error

    async def _ready(self) -> OpenAIEngine:
        """Return the engine of a running server; restart the server if it died."""
        async with self._lock:
            if self._remote is not None and not self._broken and self._process.alive:
                return self._remote
            if self._restarts >= self._entry.vllm.restarts:
                raise EngineError(
                    f"Model {self._entry.name!r}: its vLLM server died again after "
                    f"{self._restarts} restarts (`vllm: restarts`). Finished answers are kept: "
                    "give it more memory or a smaller window and run the same command again. "
                    f"Its last messages: {self._process.last_words()}"
                )
            self._restarts += 1
            await self._stop()
            return await self._start()
