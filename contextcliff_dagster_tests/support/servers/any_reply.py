"""Replies of an endpoint with any JSON in any place, and any bytes, statuses and headers.

A `Case` is a whole HTTP reply and the answer that has to be kept of it; None where what decides
that was hit as well, so that an error of the transport is as good.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

ANSWER = "937915"
PROMPT_TOKENS = 600

_NUMBERS = (
    -1_000_000, -1, 0, 1, 2**31, 2**40, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 12.0, -0.0, 1e308,
    math.nan, math.inf, -math.inf, True, False,
)  # fmt: skip
_TEXTS = ("", "many", "12", "error", "stop", "\x00", "\ud83d", "x" * 5_000, "[DONE]", "data: {}")
SCALARS = (
    st.none()
    | st.sampled_from(_NUMBERS)
    | st.sampled_from(_TEXTS)
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=6) | st.sampled_from(["text", "content"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": 2,
    "total_tokens": PROMPT_TOKENS + 2,
    "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_MORE = {"id": "x", "created": 0, "model": "m", "system_fingerprint": "fp", "timings": {"n": 1}}


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_MORE, "object": "chat.completion.chunk", "choices": [choice]}


_LAST = {**_MORE, "choices": [], "usage": USAGE, "metrics": {"queue_time_ms": 0.0,
         "time_to_first_token_ms": 0.0}}  # fmt: skip
_STREAM = [
    _chunk(role="assistant", content=""),
    _chunk(reasoning_content="hm", reasoning="hm"),
    _chunk(content=ANSWER[:3]),
    _chunk(content=ANSWER[3:]),
    _chunk("stop"),
    _LAST,
]
_COMPLETION = [
    {**_MORE, "choices": [{"index": 0, "text": ANSWER, "finish_reason": "stop"}]},
    _LAST,
]
_PARTS = [
    _chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
    _chunk("stop", content=[{"type": "text", "text": ANSWER}]),
    _LAST,
]
_WHOLE = [
    {
        **_MORE,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": ANSWER, "reasoning": None},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
]
KINDS = {"stream": _STREAM, "completion": _COMPLETION, "parts": _PARTS, "whole": _WHOLE}
_VITAL = ("choices", "error", "object", "content", "delta", "message", "text", "type")
_HARMLESS = ("logprobs", "index", "reasoning", "reasoning_content", "role", "thinking")


@dataclass(frozen=True)
class Case:
    """A reply to a request; ``text``: the answer to be kept, None where it need not be."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    text: str | None
    why: str = field(default="", compare=False)

    def on_the_wire(self) -> bytes:
        """The reply, as a server writes it."""
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + self.body


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*before, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*before, key))


def _keeps(path: tuple[Any, ...], value: Any) -> bool:
    """Whether the answer is to be kept whatever ``value`` is at ``path``."""
    if path[-1] == "finish_reason":
        return value not in (None, "", "error") and not isinstance(value, str)
    if any(name in _HARMLESS for name in path):
        return True
    return not any(name in _VITAL for name in path)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A valid reply in which one to three things are wrong."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    chunks = copy.deepcopy(KINDS[kind])
    kept, why = True, [kind]
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(chunks) - 1))
        if not isinstance(chunks[at], dict):
            continue
        places = [*paths(chunks[at]), ("error",), ("usage",), ("code",)]
        path, value = draw(st.sampled_from(places)), draw(ANY_JSON)
        target = chunks[at]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        kept &= _keeps(path, value)
        why.append(f"{at}:{'.'.join(map(str, path))} = {str(value)[:60]!r}")
    whole = kind == "whole"
    texts = [json.dumps(chunk, ensure_ascii=draw(st.booleans())) for chunk in chunks]
    events = [text.encode("utf-8", "surrogatepass") for text in texts]
    if not whole and draw(st.integers(0, 4)) == 0:  # an event that is none
        stray = draw(st.sampled_from([b"null", b"5", b"[]", b"[PING]", b'"x"', b"", b"\xff\xfe"]))
        events.insert(draw(st.integers(0, len(events))), stray)
    body = events[0] if whole else b"".join(b"data: " + one + b"\n\n" for one in events)
    body += b"" if whole or draw(st.booleans()) else b"data: [DONE]\n\n"
    headers = [("Content-Type", "application/json" if whole else "text/event-stream")]
    status = 200
    fault = draw(st.integers(0, 19))
    if fault == 0:
        status, kept = draw(st.integers(201, 599)), False
        headers += draw(st.lists(_HEADERS, max_size=2))
    elif fault == 1:  # cut anywhere
        body, kept = body[: draw(st.integers(0, len(body)))], False
    elif fault == 2:  # other bytes anywhere
        at = draw(st.integers(0, len(body)))
        body, kept = body[:at] + draw(st.binary(max_size=9)) + body[at:], False
    elif fault == 3:
        body, kept = draw(st.binary(max_size=40) | _DEEP), False
    elif fault == 4:  # declared as something else
        headers[0] = ("Content-Type", draw(st.sampled_from(_TYPES)))
    elif fault == 5:
        headers += [("Content-Encoding", "gzip")]
        body = gzip.compress(body, 1)
        if draw(st.booleans()):
            body, kept = body[: draw(st.integers(0, len(body)))], False
    return Case(status, tuple(headers), body, ANSWER if kept else None, "; ".join(why))


_TYPES = ("text/plain", "application/json", "text/event-stream", "application/octet-stream", "?")
_WAITS = ("1e308", "NaN", "-5", "inf", "0", "Fri, 31 Dec 9999 23:59:59 GMT", "soon", "9" * 400,
          "Fri, 99 Foo 99999 99:99:99 GMT")  # fmt: skip
_HEADERS = st.tuples(
    st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "location"]),
    st.sampled_from(_WAITS),
)
_DEEP = st.sampled_from(
    [
        b"data: " + b'{"a":' * 100_000,
        b'{"error":' + b"[" * 1_015 + b"]" * 1_015 + b"}",
        b'{"choices":' * 500 + b"1" + b"}" * 500,
        b'data: {"usage": {"prompt_tokens": ' + b"9" * 5_000 + b"}}\n\n",
    ]
)
