"""A model behind servers that word and report everything differently: one behaviour a kind.

The model finds the code that it is asked for in documents of up to `FALLS_AT` tokens, and mostly
invents one in longer ones. What a server does to that is its kind's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers.faulty_server import (
    DONE,
    STREAM,
    chunk,
    event,
    head,
    read_request,
)

FALLS_AT, LIMIT = 2_000, 3_000
TOKENIZER = "tiktoken:o200k_base"
"""The model's own, to which the server adds `TEMPLATE` tokens."""
TEMPLATE = 8
WORDS = "river station ledger harbour window captain garden cotton copper signal market".split()
THOUGHTS = "The code is asked for. 11111 is another. So it is this one."


def questions(path: Path, documents: int = 72) -> Path:
    """A table of documents of 250 to 5,000 tokens with a question on each."""
    draw = random.Random(7)
    with path.open("w") as file:
        for number in range(documents):
            sentences = [
                "The {} keeps the {} near the {}.".format(*draw.sample(WORDS, 3))
                for _ in range(int(28 * 20 ** (number / (documents - 1))))
            ]
            code = str(draw.randrange(20_000, 99_999))
            place = draw.randrange(len(sentences))
            sentences.insert(place, f"The code of hall {number} is {code}.")
            row = {
                "id": f"q{number}",
                "document": " ".join(sentences),
                "question": f"What is the code of hall {number}?",
                "answers": [code],
            }
            file.write(json.dumps(row) + "\n")
    return path


@dataclass
class Asked:
    """A request, and what the model says to it; ``before``: how often it was asked that before."""

    text: str
    tokens: int
    said: str
    before: int
    number: int

    def chance(self, of: str) -> float:
        """From 0 to 1, the same for the same prompt."""
        digest = hashlib.sha256(f"{of} {self.text}".encode()).digest()
        return int.from_bytes(digest[:4], "big") / 2**32

    @property
    def too_long(self) -> bool:
        return self.tokens > LIMIT


Kind = Callable[[Asked], bytes]


def told(status: int, body: object) -> bytes:
    return head(status) + json.dumps(body).encode()


def plain(message: str, **more: object) -> object:
    return {"error": {"message": message, **more}}


def answer(one: Asked, text: str | None = None, **more: object) -> bytes:
    told_usage = {"completion_tokens": 4, "prompt_tokens": one.tokens, **more}
    return begun(one.said if text is None else text) + chunk(None, "stop") + event(
        {"choices": [], "usage": told_usage}
    ) + DONE  # fmt: skip


def begun(text: str) -> bytes:
    return STREAM + chunk("", role="assistant") + chunk(text)


def beyond(refusal: Callable[[int], bytes]) -> Kind:
    return lambda one: refusal(one.tokens) if one.too_long else answer(one)


def filtered(one: Asked, refusal: bytes) -> bytes:
    return refusal if one.chance("filter") < 0.15 else answer(one)


def damaged(one: Asked, broken: bytes) -> bytes:
    return broken if not one.before and one.chance("damage") < 0.3 else answer(one)


def delta(**content: object) -> bytes:
    choices = [{"index": 0, "delta": content, "finish_reason": "stop"}]
    return STREAM + event({"choices": choices}) + DONE


def mixed(one: Asked, name: str) -> bytes:
    weak = one.number % 2
    piece = {"index": 0, "delta": {"content": "no idea" if weak else one.said}}
    named = {name: f"{name}-{weak}"}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return STREAM + event({"choices": [piece], **named}) + event({"choices": [ended]}) + DONE


CACHED = 700
LIMITED = {
    "gemini": beyond(
        lambda n: told(400, [plain(f"The input token count ({n}) exceeds the most of {LIMIT}.")])
    ),
    "anthropic": beyond(
        lambda n: told(
            400, {"type": "error"} | dict(plain(f"input of {n} and the output exceed {LIMIT}"))
        )
    ),
    "sglang": beyond(
        lambda n: told(400, {"object": "error", "message": f"The input ({n}) is longer than that"})
    ),
    "error event": beyond(
        lambda n: STREAM + b"event: error\n" + event(plain(f"keeping {n} tokens is impossible"))
    ),
    "front proxy": beyond(lambda _: head(413, "text/html") + b"<h1>Entity Too Large</h1>"),
    "validation": beyond(lambda n: told(422, {"detail": [{"msg": f"{n} is above {LIMIT}"}]})),
    "error in the body": beyond(lambda n: told(200, plain(f"sequence of {n} cannot be placed"))),
    "mute": lambda one: answer(one, "" if one.too_long else None),
    "named parameter": beyond(
        lambda n: told(
            422,
            plain(
                f"`inputs` tokens + `max_new_tokens` must be <= 3000. Given: {n}",
                param="max_tokens",
            ),
        )
    ),
    "base_resp": beyond(
        lambda n: told(200, {"base_resp": {"status_code": 2013, "status_msg": f"{n} is too many"}})
    ),
    "message alone": beyond(lambda n: told(200, {"code": 400, "msg": f"{n} is too many"})),
    "cannot generate": beyond(
        lambda n: STREAM + event(plain(f"Unable to generate: {n} tokens do not fit in {LIMIT}"))
    ),
    "request ids": beyond(
        lambda n: told(400, plain(f"Too long a text. Request id: 0{n:x}a7bc{n * 7919:x}"))
    ),
    "behind a gateway": beyond(
        lambda n: told(
            400, plain("Provider returned error", metadata={"raw": f"{n} is above {LIMIT}"})
        )
    ),
    "status 500": beyond(
        lambda n: told(500, plain(f"Prompt length ({n}) exceeds maximum input length ({LIMIT})"))
    ),
}
"""Kinds that take prompts of up to `LIMIT` tokens."""
QUOTAS = {
    "groq": beyond(
        lambda n: told(
            413,
            plain(
                f"Request too large on tokens per minute (TPM): Limit {LIMIT}, Requested {n}, "
                "please reduce your message size and try again. Need more tokens? Upgrade today at "
                "https://console.example.com/settings/billing",
                code="rate_limit_exceeded",
            ),
        )
    ),
    "openai": beyond(
        lambda n: told(
            429,
            plain(
                f"Request too large on tokens per min (TPM): Limit {LIMIT}, Requested {n}.",
                code="rate_limit_exceeded",
            ),
        )
    ),
}
FILTERS = {
    "azure": lambda one: filtered(
        one, told(400, plain("The response was filtered", code="content_filter"))
    ),
    "withheld": lambda one: filtered(one, STREAM + chunk(None, "content_filter") + DONE),
    "gemini": lambda one: filtered(one, STREAM + chunk("The", "SAFETY") + DONE),
    "moderation": lambda one: filtered(
        one, told(403, plain("Input flagged", code=403, metadata={"reasons": ["violence"]}))
    ),
}
SAME = {
    "plain": answer,
    "busy": lambda one: (
        answer(one)
        if one.number % 4
        else told(503, plain("Service is too busy. Please wait and try again in 0.01s"))
    ),
    "a rate": lambda one: (
        answer(one)
        if one.number % 4
        else told(
            429,
            plain(
                "Rate limit on tokens per min (TPM): Limit 6000, Used 6012, Requested 900. Please "
                "try again in 0.01s. More: https://console.example.com/settings/billing",
                code="rate_limit_exceeded",
            ),
        )
    ),
    "cached apart": lambda one: answer(
        one,
        prompt_tokens=one.tokens - CACHED if one.tokens > CACHED else one.tokens,
        prompt_tokens_details={"cached_tokens": CACHED if one.tokens > CACHED else 0},
    ),
    "usage of zero": lambda one: answer(one, prompt_tokens=0),
    "no usage": lambda one: begun(one.said) + chunk(None, "stop") + DONE,
    "no finish reason": lambda one: begun(one.said) + DONE,
    "whole": lambda one: told(
        200, {"choices": [{"message": {"content": one.said}, "finish_reason": "stop"}]}
    ),
    "thinks aloud": lambda one: answer(one, f"<think>\n{THOUGHTS}\n</think>\n\n{one.said}"),
    "thinks from the prompt on": lambda one: answer(one, f"{THOUGHTS}\n</think>\n\n{one.said}"),
    "harmony": lambda one: answer(one, f"analysis{THOUGHTS}assistantfinal{one.said}"),
    "answers as thoughts": lambda one: (
        STREAM + chunk("", reasoning_content=one.said) + chunk(None, "stop") + DONE
    ),
    "no utf-8": lambda one: damaged(one, begun("a") + b'data: {"choices":[{"delta":{"content":"\xff'
                                    b'"}}]}\n\n' + chunk(None, "stop") + DONE),
    "half a character": lambda one: damaged(one, begun("\ud83d") + chunk(None, "stop") + DONE),
    "a number": lambda one: damaged(one, delta(content=int(one.said))),
    "in a sentence": lambda one: answer(one, f"The code of that hall is **{one.said}**."),
}  # fmt: skip
"""Kinds whose number is that of a server of which nothing is strange."""
INSTEAD = {
    "refusal": lambda one: (
        delta(content=None, refusal="I will not say.") if one.too_long else answer(one)
    ),
    "tool_calls": lambda one: (
        delta(content=None, tool_calls=[{"function": {"name": "find", "arguments": one.said}}])
        if one.too_long
        else answer(one)
    ),
}
CREDITS = 40
ENDED = {
    "credits": lambda one: (
        answer(one) if one.number < CREDITS else told(402, plain("Insufficient credits"))
    ),
    "billing": lambda one: (
        answer(one)
        if one.number < CREDITS
        else told(400, plain("Your credit balance is too low to access the API"))
    ),
    "key": lambda one: answer(one) if one.number < CREDITS else told(401, plain("key expired")),
}
"""Kinds that answer `CREDITS` requests and then none."""
KINDS: dict[str, dict[str, Kind]] = {
    "limited": LIMITED,
    "quota": QUOTAS,
    "filter": FILTERS,
    "same": SAME,
    "instead": INSTEAD,
    "mixed": {name: lambda one, name=name: mixed(one, name) for name in ("model", "provider")},  # type: ignore[misc]
    "ended": ENDED,
    "cut": {
        "limit in capitals": lambda one: (
            STREAM + chunk("", reasoning_content=THOUGHTS) + chunk(None, "MAX_TOKENS") + DONE
        ),
        "hidden": lambda one: STREAM + chunk("") + chunk(None, "length") + DONE,
        "thoughts": lambda one: (
            STREAM + chunk(f"<think>\n{THOUGHTS}") + chunk(None, "length") + DONE
        ),
    },
}


@dataclass
class StrangeServer:
    """``asked``: how many completions it was asked for."""

    kind: Kind
    asked: int = 0
    _seen: Counter[str] = field(default_factory=Counter)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, _, body = await read_request(reader)
        if path.endswith("/chat/completions"):
            text = "\n".join(turn["content"] for turn in json.loads(body)["messages"])
            writer.write(self.kind(self._asked(text)))
        else:
            writer.write(told(404, plain("nothing here")))
        await writer.drain()
        writer.close()

    def _asked(self, text: str) -> Asked:
        tokens = open_tokenizer(TOKENIZER).count(text) + TEMPLATE
        one = Asked(text, tokens, "", self._seen[text], self.asked)
        self.asked += 1
        self._seen[text] += 1
        asked = re.findall(r"code of hall (\d+)\?", text)
        found = asked and re.search(rf"code of hall {asked[-1]} is (\d+)", text)
        knows = one.chance("model") < (0.95 if tokens <= FALLS_AT else 0.2)
        one.said = found[1] if found and knows else str(10_000 + int(9_000 * one.chance("code")))
        return one
