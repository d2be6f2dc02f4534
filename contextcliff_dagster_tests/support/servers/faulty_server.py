"""An endpoint that misbehaves on order: each completion request takes the next behaviour of a list.

The last behaviour of the list stays. Requests are logged where there is a file for them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

PROMPT_TOKENS = 2_999


def head(status: int, kind: str = "application/json", extra: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n{extra}\r\n".encode()
    )


def error(
    status: int, message: str, code: str = "", extra: str = "", param: str | None = None
) -> bytes:
    return (
        head(status, extra=extra)
        + json.dumps({"error": {"message": message, "code": code, "param": param}}).encode()
    )


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(text: str | None, finish: str | None = None, **delta: str) -> bytes:
    piece = {"content": text, **delta} if text is not None else dict(delta)
    return event({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m",
                   "choices": [{"index": 0, "delta": piece, "finish_reason": finish}]})  # fmt: skip


def usage(prompt_tokens: int, completion_tokens: int = 2, **more: object) -> bytes:
    told = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, **more}
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": told})


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Path, headers (names in lower case) and body."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines[1:] if ": " in line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return lines[0].split()[1], headers, body


def key_of(headers: dict[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


STREAM = head(200, "text/event-stream")
DONE = b"data: [DONE]\n\n"
ANSWER = STREAM + chunk("", role="assistant") + chunk("937") + chunk("915") + chunk(None, "stop")
ERRORS = {
    "401": (401, "Incorrect API key provided: {key}", "invalid_api_key"),
    "403": (403, "no access", ""),
    "404": (404, "The model does not exist", "model_not_found"),
    "quota": (429, "You exceeded your current quota", "insufficient_quota"),
    "400": (400, "nothing is to be done with this", ""),
    "filter": (400, "the prompt offends us", "content_policy"),
    "429_tokens": (429, "Too many tokens, please wait before trying again.", "throttled"),
    "400_overflow": (
        400,
        "This model's maximum context length is 100 tokens. However, you requested 200",
        "",
    ),
    "400_temperature": (
        400,
        "Unsupported value: 'temperature' does not support 0.0 with this model.",
        "",
    ),
    "400_max_tokens": (400, "Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'", ""),
    "400_one_only": (400, "invalid temperature: only 1 is allowed for this model", ""),
    "422_positive": (422, "Input validation error: `temperature` must be strictly positive", ""),
    "400_too_many": (400, "max_tokens is too large: 8. At most 4 completion tokens.", ""),
    "400_stream_options": (400, "Unrecognized request argument supplied: stream_options", ""),
    "400_top_k": (400, "Unrecognized request argument supplied: top_k", ""),
    "400_a_quote": (
        400,
        "No answer to 'it must be hot; what is the mean daily temperature in the cabin of a van"
        " parked in the sun, and is that allowed'",
        "",
    ),
    "400_unfinished": (400, "Could not finish the message because max_tokens was reached.", ""),
    "500": (500, "it broke; your key was {key}", ""),
    "503": (503, "busy", ""),
}


async def behave(what: str, key: str, writer: asyncio.StreamWriter) -> None:
    if what == "429":
        writer.write(error(429, "slow down", "rate_limit", "retry-after-ms: 10\r\n"))
    elif what in ERRORS:
        status, message, code = ERRORS[what]
        param = "max_tokens" if what == "400_too_many" else None
        writer.write(error(status, message.replace("{key}", key), code, param=param))
    elif what == "reset":
        writer.transport.abort()
    elif what == "stall":
        await asyncio.sleep(30)
    elif what == "cut":
        writer.write(STREAM + chunk("", role="assistant") + chunk("937"))
    elif what == "cut_hard":
        writer.write(STREAM + chunk("937"))
        await writer.drain()
        writer.transport.abort()
    elif what == "html":
        writer.write(head(200, "text/html") + b"<html>Please log in</html>")
    elif what == "whole":
        choice = {"index": 0, "message": {"content": "937915"}, "finish_reason": "stop"}
        told = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 2}
        writer.write(head(200) + json.dumps({"choices": [choice], "usage": told}).encode())
    elif what == "parts":
        thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "let me see"}]}]
        writer.write(STREAM + event({"choices": [{"delta": {"content": thinking}}]}))
        writer.write(ANSWER[len(STREAM) :] + usage(PROMPT_TOKENS))
    elif what == "half_usage":
        told = {"prompt_tokens": PROMPT_TOKENS}
        writer.write(ANSWER + event({"choices": [], "usage": told}) + DONE)
    elif what == "empty_json":
        writer.write(head(200) + b"{}")
    elif what == "broken_json":
        writer.write(STREAM + b"data: {broken\n\n")
    elif what == "stream_error":
        writer.write(STREAM + chunk("93") + event({"error": {"message": f"GPU fell off ({key})"}}))
    elif what == "finish_error":
        writer.write(STREAM + chunk("9", "error"))
    elif what == "nothing":
        writer.write(STREAM + chunk(None, "stop") + usage(PROMPT_TOKENS) + DONE)
    elif what == "reasoning":
        writer.write(
            STREAM
            + chunk(None, reasoning_content="let me see")
            + ANSWER[len(STREAM) :]
            + usage(PROMPT_TOKENS)
        )
    elif what == "reasoning_answer":
        answer = chunk(None, reasoning_content="937915") + chunk(None, "stop")
        writer.write(STREAM + answer + usage(PROMPT_TOKENS) + DONE)
    elif what == "reasoning_told":
        thought = usage(PROMPT_TOKENS, 7, completion_tokens_details={"reasoning_tokens": 5})
        writer.write(ANSWER + thought + DONE)
    elif what == "reasoning_beside":  # told by the sum alone
        writer.write(ANSWER + usage(PROMPT_TOKENS, 2, total_tokens=PROMPT_TOKENS + 7) + DONE)
    elif what == "reasoned_out":
        thought = chunk(None, reasoning_content="let me see") + chunk(None, "length")
        told = usage(PROMPT_TOKENS, 8, completion_tokens_details={"reasoning_tokens": 8})
        writer.write(STREAM + thought + told + DONE)
    elif what == "truncated":
        writer.write(ANSWER + usage(20) + DONE)
    elif what == "no_usage":
        writer.write(ANSWER + DONE)
    else:
        assert what == "ok", what
        writer.write(ANSWER + usage(PROMPT_TOKENS) + DONE)


class FaultyServer:
    def __init__(self, script: list[str], log: Path | None) -> None:
        self.script, self.log = script, log
        self.served = 0

    def next(self) -> str:
        item = self.script[min(self.served, len(self.script) - 1)]
        self.served += 1
        return item

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, headers, body = await read_request(reader)
            key = key_of(headers)
            if path.endswith("/models"):
                models = self.script[0] == "models_401"
                writer.write(error(401, f"bad key {key}") if models else error(404, "no list here"))
            elif not path.endswith("/completions"):
                writer.write(error(404, "nothing here"))
            else:
                what = self.next()
                if self.log:
                    with self.log.open("a") as lines:
                        lines.write(
                            json.dumps(
                                {"behaviour": what, "headers": headers, "body": json.loads(body)}
                            )
                            + "\n"
                        )
                await behave(what, key, writer)
            if not writer.transport.is_closing():
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
