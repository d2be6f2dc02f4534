"""Endpoints that refuse prompts beyond a limit, each in the words of a kind of server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from contextcliff_dagster_tests.support.servers.faulty_server import (
    ANSWER,
    DONE,
    STREAM,
    chunk,
    event,
    head,
    read_request,
    usage,
)

LIMIT_CHARACTERS = 1_200


def told(status: int, body: object) -> bytes:
    return head(status) + json.dumps(body).encode()


def plain(message: str, **more: object) -> object:
    return {"error": {"message": message, **more}}


REFUSALS: dict[str, Callable[[int], bytes]] = {
    "gemini": lambda n: told(400, [{"error": {"code": 400, "message": f"{n} tokens, not 300"}}]),
    "anthropic": lambda n: told(
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": f"input of {n} and 64 output exceed 300",
            },
        },
    ),
    "plain text": lambda _: head(413, "text/plain") + b"payload refused by the front proxy",
    "validation": lambda n: told(422, {"detail": [{"loc": ["body"], "msg": f"{n} is above 300"}]}),
    "error in the body": lambda n: told(200, plain(f"sequence of {n} cannot be placed")),
    "error event": lambda n: (
        STREAM
        + b"event: error\n"
        + event(plain(f"keeping {n} tokens is not possible with a context of 300"))
    ),
    "after the role": lambda n: (
        STREAM + chunk("", role="assistant") + event(plain(f"slot {n} full"))
    ),
}
"""Kind of server -> what it answers to a prompt of so many tokens that is too long for it."""
RATE = {"type": "tokens", "code": "rate_limit_exceeded"}
RATES: dict[str, Callable[[int], bytes]] = {
    "groq": lambda n: told(
        413, plain(f"Too large on tokens per minute (TPM): Limit 300, Requested {n}", **RATE)
    ),
    "openai": lambda n: told(
        429, plain(f"Request too large on tokens per min (TPM): Limit 300, Requested {n}.", **RATE)
    ),
}


class LimitedServer:
    """Answers prompts up to ``limit`` characters; ``lengths``: of all that it was asked.

    Args:
        moody: refuse every fourth request as well, whatever its length.
    """

    def __init__(
        self, refusal: Callable[[int], bytes], limit: int = LIMIT_CHARACTERS, *, moody: bool = False
    ) -> None:
        self.refusal, self.limit, self.moody = refusal, limit, moody
        self.lengths: list[int] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, _, body = await read_request(reader)
        if path.endswith("/chat/completions"):
            length = sum(len(turn["content"]) for turn in json.loads(body)["messages"])
            self.lengths.append(length)
            refused = length > self.limit or (self.moody and len(self.lengths) % 4 == 0)
            writer.write(self.refusal(length // 4) if refused else ANSWER + usage(length) + DONE)
        else:
            writer.write(told(404, plain("nothing here")))
        await writer.drain()
        writer.close()
