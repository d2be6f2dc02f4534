"""An endpoint that gives each prompt one answer for good, when it is not faulty or full.

Its options:

- ``seats``: how many requests are worked on at once; whoever comes then is answered by 429;
- ``faults``: the share of requests that meet a fault of `FAULTS` instead of the answer;
- ``delay_ms``: how long an answer takes; ``seed``: of the faults;
- ``reads_at_most``: tokens of a prompt that are read, the rest is cut without a word;
- ``usage``: false to report none; ``count_factor``: by how much it counts more tokens than ours;
- ``ms_per_token``, ``slow_beyond``, ``slow_factor``: the first token comes after so many ms for
  each prompt token, that many times as many for prompts longer than ``slow_beyond`` tokens; and
  that is the time that the server reports, by a clock that no other load of the machine moves;
- ``log``: a file with one JSON line for every completion request, written before it is answered,
  with the tokens of its prompt by the server's count.

An answer is a number made of the prompt's hash, and its usage is the prompt's true length, so that
two runs can be compared row by row.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import Any

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers import faulty_server as wire

FAULTS = ("429", "500", "reset", "stall", "cut", "broken_json", "html")
TEMPLATE_TOKENS = 4
COMPLETION_TOKENS = 2


class UnreliableServer:
    def __init__(self, options: dict[str, Any]) -> None:
        self.seats: int = options.get("seats") or 1 << 30
        self.faults: float = options.get("faults", 0.0)
        self.delay_s: float = options.get("delay_ms", 30) / 1000
        self.rng = random.Random(options.get("seed", 0))
        self.log = open(options["log"], "a", buffering=1) if options.get("log") else None  # noqa: PTH123, SIM115
        self.reads_at_most: int = options.get("reads_at_most") or 1 << 30
        self.usage: bool = options.get("usage", True)
        self.count_factor: float = options.get("count_factor", 1.0)
        self.ms_per_token: float = options.get("ms_per_token", 0.0)
        self.slow_beyond: int = options.get("slow_beyond") or 1 << 30
        self.slow_factor: float = options.get("slow_factor", 1.0)
        self.seated = 0
        self.count = open_tokenizer("reference").count

    def choose(self) -> str:
        if self.seated >= self.seats:
            return "429"
        return self.rng.choice(FAULTS) if self.rng.random() < self.faults else "ok"

    async def complete(self, body: dict[str, Any], key: str, writer: asyncio.StreamWriter) -> None:
        text = "".join(message["content"] for message in body["messages"])
        prompt = hashlib.sha256(text.encode()).hexdigest()
        what = self.choose()
        tokens = round((self.count(text) + TEMPLATE_TOKENS) * self.count_factor)
        if self.log:
            line = {"prompt": prompt, "behaviour": what, "tokens": tokens}
            self.log.write(json.dumps(line) + "\n")
        if what != "ok":
            await wire.behave(what, key, writer)
            return
        slower = self.slow_factor if tokens > self.slow_beyond else 1.0
        self.seated += 1
        seconds = self.delay_s + slower * self.ms_per_token * tokens / 1000
        try:
            await asyncio.sleep(seconds)
        finally:
            self.seated -= 1
        answer = wire.chunk("", role="assistant") + wire.chunk(str(int(prompt[:6], 16)))
        usage = wire.usage(min(tokens, self.reads_at_most), COMPLETION_TOKENS)
        told = usage if self.usage else b""
        if self.ms_per_token:
            timing = {"queue_time_ms": 0.0, "time_to_first_token_ms": seconds * 1000}
            told += wire.event({"choices": [], "metrics": timing})
        writer.write(wire.STREAM + answer + wire.chunk(None, "stop") + told + wire.DONE)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, headers, body = await wire.read_request(reader)
            if path.endswith("/chat/completions"):
                await self.complete(json.loads(body), wire.key_of(headers), writer)
            else:
                writer.write(wire.error(404, "no list here"))
            if not writer.transport.is_closing():
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
