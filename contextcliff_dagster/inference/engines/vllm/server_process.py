"""A vLLM server of our own: started on a free port of the loopback, watched, ended with us."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.process_lease import lease_descriptors
from contextcliff_dagster.inference.engines.openai.http_client import Endpoint
from contextcliff_dagster.inference.engines.process_log import last_words
from contextcliff_dagster.inference.engines.vllm import process_watchdog
from contextcliff_dagster.inference.engines.vllm.engine_args import (
    engine_args,
    environment,
    refused_cache_type,
    vllm_version,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry

SHUTDOWN_SECONDS = 10
HEALTH_SECONDS = 10.0
_POLL_SECONDS = 0.2
_PORT_ATTEMPTS = 3


class VllmProcess:
    """``python -m vllm.entrypoints.openai.api_server`` for one model."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: tempfile._TemporaryFileWrapper[bytes] | None = None
        self.pid: int | None = None
        self.address = ""

    async def start(self) -> None:
        """Start it and wait until it answers; an EngineError quotes the end of its log."""
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
        # Ours are defaults: what the user has set for vLLM counts.
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
        """Whether the process is there."""
        return self._guard is not None and self._guard.poll() is None

    async def healthy(self) -> bool:
        """Whether it is there, answers, and its engine lives."""
        from aiohttp import ClientError

        if not self.alive:
            return False
        endpoint = Endpoint(self.address, {}, timeout_s=HEALTH_SECONDS, connections=1, direct=True)
        try:
            return (await endpoint.ask("/health", within_s=HEALTH_SECONDS)).status == 200
        except (ClientError, OSError):  # a TimeoutError is an OSError
            return False
        finally:
            await endpoint.close()

    def last_words(self, lines: int = 4) -> str:
        """The last lines of its log that hold a text, on one line, without secrets."""
        if self._log is None:
            return "nothing"
        return last_words(Path(self._log.name), lines)

    async def stop(self) -> None:
        """End it, and all that it started; safe to call twice."""
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
    """The command line; ``engine_args`` become options of the same names."""
    served = {
        "host": "127.0.0.1",
        "port": port,
        "served_model_name": entry.model_id,
        "allowed_origins": ["http://127.0.0.1"],  # no page in a browser may ask
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
