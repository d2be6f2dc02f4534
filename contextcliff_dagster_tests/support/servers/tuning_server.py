"""An endpoint whose replies tune: each one is a function of the prompt alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

from contextcliff_dagster_tests.support.o200k import O200K
from contextcliff_dagster_tests.support.servers import faulty_server as wire

Reply = Callable[[str], str]
KEY = "canary-7f3a90c14e"


def drawn(prompt: str) -> str:
    """A configuration of `toy`, now and then words or a value out of bounds."""
    rng = random.Random(hashlib.sha256(prompt.encode()).hexdigest())
    config = {"C": round(10 ** rng.uniform(-2, 2), 4), "max_iter": rng.randint(10, 1000)}
    return rng.choice([json.dumps(config)] * 6 + ["no idea", '{"C": 1e9}'])


class TuningServer:
    """Keeps the bodies and keys that it was sent.

    ``schemas``: takes `response_format`; else a request with one is refused, as by servers that
    have never heard of it. ``broken_after``: completions that are answered before it dies.
    """

    def __init__(
        self, reply: Reply = drawn, *, schemas: bool = True, broken_after: int | None = None
    ) -> None:
        self.reply, self.schemas, self.broken_after = reply, schemas, broken_after
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.delay_s = 0.0

    @property
    def prompts(self) -> list[str]:
        """The last turn of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, headers, data = await wire.read_request(reader)
            if path.endswith("/chat/completions"):
                self.keys.add(wire.key_of(headers))
                await self._complete(json.loads(data), writer)
            else:
                writer.write(wire.error(404, "no list here"))
            if not writer.transport.is_closing():
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _complete(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self.broken_after is not None and len(self.bodies) >= self.broken_after:
            writer.transport.abort()
            return
        self.bodies.append(body)
        if "response_format" in body and not self.schemas:
            unknown = "Unsupported parameter: 'response_format'"
            writer.write(wire.error(400, unknown, param="response_format"))
            return
        await asyncio.sleep(self.delay_s)
        text = "\n".join(turn["content"] for turn in body["messages"])
        reply = self.reply(body["messages"][-1]["content"])
        used = wire.usage(O200K.count(text) + 8, O200K.count(reply[:4096]))
        pieces = b"".join(wire.chunk(reply[k : k + 4096]) for k in range(0, len(reply), 4096))
        writer.write(wire.STREAM + pieces + wire.chunk(None, "stop") + used + wire.DONE)
