"""A minimal-cost stub of a chat-completions endpoint: it reads, waits, and answers.

    python overhead_server.py DELAY_MS

Prints its base URL. Streams eight tokens and the usage if requested, else answers in one piece.
Four bytes of the request count as one token.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import cast

WORDS = ["9", "3", "7", "9", "1", "5", "0", "8"]
BYTES_PER_TOKEN = 4
# Of a length of its own, so that a reply is its template with the number in its place.
PLACE = b"1234567890"
USAGE = {"prompt_tokens": int(PLACE), "completion_tokens": len(WORDS), "total_tokens": int(PLACE)}
HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "stub"}


def _reply(kind: str, body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _chunked(b"data: " + json.dumps({**HEAD, "choices": [choice]}).encode() + b"\n\n")


STREAM_BEGINS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    + _event({"role": "assistant", "content": ""})
)
STREAM_TOKENS = [_event({"content": word}) for word in WORDS]
STREAM_ENDS = (
    _event({}, "stop")
    + _chunked(b"data: " + json.dumps({**HEAD, "choices": [], "usage": USAGE}).encode() + b"\n\n")
    + _chunked(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)
MESSAGE = {"role": "assistant", "content": "".join(WORDS)}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop", "logprobs": None}
WHOLE = {**HEAD, "object": "chat.completion", "choices": [CHOICE], "usage": USAGE}
WHOLE_REPLY = _reply("application/json", json.dumps(WHOLE).encode())
MODELS = {"object": "list", "data": [{"id": "stub", "object": "model", "max_model_len": 1 << 20}]}
MODELS_REPLY = _reply("application/json", json.dumps(MODELS).encode())
NOT_HERE = _reply("application/json", b'{"error": {"message": "not here"}}', "404 Not Found")


class Stub(asyncio.Protocol):
    """One connection, which handles its requests one after the other."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._head = b""
        self._left = 0
        self._body_seen = b""
        self._end = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            split = self._head.find(b"\r\n\r\n")
            if split < 0:
                return
            head, data = self._head[:split], self._head[split + 4 :]
            self._line, self._head = head.split(b"\r\n", 1)[0], b""
            lines = dict(
                line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line
            )
            if b"100-continue" in lines.get(b"expect", b""):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._left = int(lines.get(b"content-length", b"0"))
            self._tokens = b"%10d" % (self._left // BYTES_PER_TOKEN)
            self._body_seen = b""
        # The key `stream` is within the first or the last bytes; the text is not looked at.
        self._body_seen = self._body_seen or data[:200]
        self._end = (self._end + data)[-200:] if len(data) < 200 else data[-200:]
        self._left -= len(data)
        if self._left <= 0:
            self._left = 0
            self._answer()

    def _answer(self) -> None:
        if b"/chat/completions" not in self._line:
            self._transport.write(MODELS_REPLY if b"/models" in self._line else NOT_HERE)
            return
        seen = (self._body_seen + self._end).replace(b" ", b"")
        reply = self._stream if b'"stream":true' in seen else self._whole
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, reply)
        else:
            reply()

    def _whole(self) -> None:
        self._transport.write(WHOLE_REPLY.replace(PLACE, self._tokens))

    def _stream(self) -> None:
        self._transport.write(STREAM_BEGINS)
        for token in STREAM_TOKENS:
            self._transport.write(token)
        self._transport.write(STREAM_ENDS.replace(PLACE, self._tokens))


async def main() -> None:
    delay_s = float(sys.argv[1]) / 1000
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stub(delay_s), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(ImportError):
        import uvloop

        uvloop.install()
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
