"""The worker process of engine `kvpress`: it has its own environment and ends with this process.

Requests and answers are JSON lines over its stdin and stdout. It ends when its stdin closes, and
the kernel closes it no matter how this process ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from importlib.metadata import distributions
from itertools import count
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.leases import lease_descriptors
from contextcliff_dagster.inference.engines.base import TransportError, last_words
from contextcliff_dagster.store import PACKAGE

PYTHON_VARIABLE = "CONTEXTCLIFF_KV_PYTHON"
"""Variable with the path of a Python that has torch, transformers and kvpress."""

START_SECONDS = 900
_END_SECONDS = 10
_PROGRAM = """\
import runpy, sys, types
package = types.ModuleType("contextcliff_dagster")
package.__path__ = [sys.argv.pop(1)]
sys.modules[package.__name__] = package
runpy.run_module("contextcliff_dagster.inference.engines.kvpress.worker", run_name="__main__")
"""
"""Code that runs the worker from this package without the other packages installed next to it."""
_LONGEST_LINE = 1 << 24

Message = Mapping[str, Any]


def kv_python() -> Path:
    """Return the environment's Python, by default in a folder next to ours that ends in ``-kv``."""
    return Path(os.environ.get(PYTHON_VARIABLE) or f"{sys.prefix}-kv/bin/python")


def kv_versions(model: str) -> dict[str, str]:
    """Return distribution -> version for the worker's libraries, without importing them.

    Raises:
        EngineError: the environment is missing, or kvpress is not installed in it.
    """
    python = kv_python()
    places = [str(path) for path in python.parent.parent.glob("lib/python*/site-packages")]
    installed = {d.name: d.version for d in distributions(path=places)}
    if not python.is_file() or "kvpress" not in installed:
        place = python if os.environ.get(PYTHON_VARIABLE) else python.parent.parent
        raise EngineError(
            f"Model {model!r} needs the separate kvpress environment, which was not found at "
            f"{place}; create it by `make install-kv` in a checkout of the source, or "
            f"set {PYTHON_VARIABLE} to its Python."
        )
    names = ("torch", "transformers", "kvpress", "gguf")
    return {name: installed[name] for name in names if name in installed}


class WorkerProcess:
    """A worker process for models with the same settings."""

    def __init__(self, model: str, settings: Message) -> None:
        self._model, self._settings = model, settings
        self._process: asyncio.subprocess.Process | None = None
        self._log: tempfile._TemporaryFileWrapper[bytes] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Queue[Message | None]] = {}
        self._numbers = count(1)
        self._ended = False

    def adopt(self, model: str, settings: Message) -> bool:
        """Rename the worker to ``model``; return whether its settings are the same."""
        self._model = model
        return dict(settings) == dict(self._settings)

    @property
    def pid(self) -> int | None:
        """The process id while the worker is running, else None."""
        return self._process.pid if self._process and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the worker is running and its answers are being read."""
        return self._listener is not None and not self._ended

    async def start(self) -> str:
        """Start the worker, wait until the weights are loaded, and return its device's name.

        Raises:
            EngineError: the worker cannot load the weights; its reason is in the message.
        """
        self._log = tempfile.NamedTemporaryFile(prefix="kvpress-", suffix=".log")  # noqa: SIM115
        self._process = process = await asyncio.create_subprocess_exec(
            *(
                str(kv_python()),
                "-I",
                "-c",
                _PROGRAM,
                str(PACKAGE),
                json.dumps(dict(self._settings)),
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            # Threads that wait for each other at full speed lose half of a core that others use.
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "HF_HUB_OFFLINE": "1"},
            limit=_LONGEST_LINE,
            pass_fds=lease_descriptors(),
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise EngineError(
                    f"Model {self._model!r}: its worker was not ready after {START_SECONDS} s; "
                    "run the same command when the machine is less busy."
                ) from error
            raise
        ready = json.loads(line or "{}")
        if "device" not in ready:
            reason = ready.get("refused") or self.last_words()
            await self.stop()
            raise EngineError(
                f"Model {self._model!r}: engine kvpress cannot load {self._settings['folder']} "
                f"({reason}); correct its entry in models.yaml, or fetch the weights again."
            )
        self._ended = False
        self._listener = asyncio.create_task(self._listen(process.stdout))
        return str(ready["device"])

    async def _listen(self, answers: asyncio.StreamReader) -> None:
        try:
            async for line in answers:
                message = json.loads(line)
                if (waiting := self._waiting.get(message["id"])) is not None:
                    waiting.put_nowait(message)
        finally:
            self._ended = True
            for waiting in self._waiting.values():
                waiting.put_nowait(None)

    async def ask(self, request: Message) -> AsyncIterator[Message]:
        """Yield the answers to one request; if the caller leaves early, the worker stops too.

        Raises:
            TransportError: the worker died.
        """
        number, finished = next(self._numbers), False
        answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._waiting[number] = answers
        try:
            if not self.alive:
                raise self._died()
            with suppress(OSError):  # the listener sees its end, too
                await self._send({**request, "id": number})
            while not finished:
                message = await answers.get()
                if message is None:
                    raise self._died()
                finished = not message.keys().isdisjoint({"count", "finish_reason", "refused"})
                yield message
        finally:
            del self._waiting[number]
            if not finished and self.alive:
                with suppress(OSError):
                    await self._send({"op": "cancel", "id": number})

    async def _send(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(message)).encode() + b"\n")
        await self._process.stdin.drain()

    def _died(self) -> TransportError:
        return TransportError("server_died", f"the kvpress worker died ({self.last_words(1)})")

    def last_words(self, lines: int = 4) -> str:
        """Return the last lines that the worker wrote to stderr."""
        return last_words(Path(self._log.name), lines) if self._log else "nothing"

    async def stop(self) -> None:
        """End the worker; calling it twice is safe."""
        process, self._process = self._process, None
        listener, self._listener = self._listener, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if listener is not None:
            await asyncio.gather(listener, return_exceptions=True)
