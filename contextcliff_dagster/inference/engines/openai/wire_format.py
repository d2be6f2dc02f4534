"""The wire format of chat completions and completions, and a server's token counts."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import orjson

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    UNKNOWN_FINISH,
    Decoding,
    Delta,
    Embeddings,
    PromptCount,
    RejectedError,
    Timing,
    TransportError,
    Usage,
    token_count,
)
from contextcliff_dagster.inference.engines.openai.http_client import MOST_OF_A_REPLY, StatusError
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect, Probes
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.retry import Backoff, retry


def request(
    entry: ModelEntry,
    prompt: Prompt,
    decoding: Decoding,
    dialect: str = "plain",
    *,
    stream: bool = True,
) -> tuple[str, list[bytes]]:
    """Return a request's path, and its body in pieces; the document is encoded once."""
    path = "/completions" if prompt.mode == "completion" else "/chat/completions"
    more = {} if decoding.prefix_cache else _reuse_nothing(dialect)
    more |= _sampling(entry, decoding, dialect) | _schema(decoding)
    return path, encoded(prompt, lambda part: {**_body(entry, part, decoding, stream), **more})


def _reuse_nothing(dialect: str) -> dict[str, Any]:
    """Return fields that make a server read the whole prompt; {} for servers that refuse them.

    vLLM reuses a prefix only under the salt that it was read with; llama.cpp has a switch.
    """
    if dialect == "vllm":
        return {"cache_salt": uuid.uuid4().hex}
    return {"cache_prompt": False} if dialect == "llamacpp" else {}


def _sampling(entry: ModelEntry, decoding: Decoding, dialect: str) -> dict[str, Any]:
    """Return all sampling fields, because servers have their own defaults for these (KoboldCpp a
    ``top_p`` of 0.92, llama.cpp a ``min_p`` of 0.05)."""
    if (sampling := decoding.sampling) is None:
        return {}
    body: dict[str, Any] = {"top_p": sampling.top_p}
    if entry.quirks.seed == "send":
        body["seed"] = sampling.seed
    takes_min_p = dialect in KNOW_MIN_P
    if entry.quirks.top_k == "send" and (sampling.top_k or takes_min_p):
        body["top_k"] = sampling.top_k or _ALL_TOKENS[dialect]
    return {**body, "min_p": 0.0} if takes_min_p else body


def _schema(decoding: Decoding) -> dict[str, Any]:
    """Return the reply's schema in the form that OpenAI, vLLM and llama.cpp accept."""
    if decoding.schema is None:
        return {}
    named_schema = {"name": "reply", "strict": True, "schema": dict(decoding.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named_schema}}


_ALL_TOKENS = {"vllm": -1, "llamacpp": 0, "koboldcpp": 0}
KNOW_MIN_P = frozenset(_ALL_TOKENS)


def encoded(prompt: Prompt, body: Callable[[Prompt], Any]) -> list[bytes]:
    """Return the JSON of ``body(prompt)`` in pieces, with the document as one piece if possible."""
    if prompt.document and prompt.outline:
        with suppress(ValueError):  # the question itself contains the mark
            return prompt.document.within(orjson.dumps(body(prompt.outline)))
    return [orjson.dumps(body(prompt))]


def _body(entry: ModelEntry, prompt: Prompt, decoding: Decoding, stream: bool) -> dict[str, Any]:
    quirks = entry.quirks
    body: dict[str, Any] = {**entry.asked_besides, "model": entry.model_id}
    if stream:
        body["stream"] = True
    if stream and quirks.stream_usage == "send":
        body["stream_options"] = {"include_usage": True}
    if quirks.temperature == "send":
        body["temperature"] = decoding.temperature
    if prompt.mode == "completion":
        return {**body, "prompt": prompt.text, "max_tokens": decoding.max_output_tokens}
    body[quirks.max_tokens_parameter] = decoding.max_output_tokens
    if goes_on(entry, prompt):
        body |= GO_ON
    return {**body, "messages": prompt.as_dicts()}


GO_ON = {"continue_final_message": True, "add_generation_prompt": False}
"""vLLM's fields for continuing a begun answer."""


def goes_on(entry: ModelEntry, prompt: Prompt) -> bool:
    """Return whether the model continues a begun answer through vLLM's fields."""
    return prompt.mode == "chat_prefill" and entry.quirks.prefill == "continue_final_message"


_MOST_OF_A_REASON = 64
_LENGTH_REASONS = frozenset({"max_tokens", "max_output_tokens", "model_length"})
_THOUGHTS = ("reasoning", "reasoning_content", "thinking")
_THOUGHT_PARTS = ("thinking_blocks", "reasoning_details")
_WORDS_OF_ERRORS = ("detail", "message", "msg", "error_msg", "status_msg")


def read_json(data: bytes) -> Any:
    """Return the JSON value in ``data``. NaN is accepted; invalid UTF-8 counts as halves of
    surrogate pairs, which damage only the text that they are in.

    Raises:
        json.JSONDecodeError: the data are not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        try:
            return json.loads(data.decode(errors="surrogateescape"))
        except (ValueError, RecursionError):
            raise error from None


def read_delta(chunk: dict[str, Any], within_ms: float = math.inf) -> Delta | None:
    """Return the answer's piece in a chunk of either interface, or None. Fields other than the text
    may be missing; a value of the wrong type counts as missing.

    ``within_ms``: time since the request was sent; no time from the server can be longer.

    Raises:
        TransportError: the answer's text is not text.
    """
    text = reasoning = ""
    finish_reason = instead = None
    choices: Any = chunk.get("choices")
    # The first valid choice, whatever its number: some servers begin with 1.
    if choice := next(iter(objects_in(choices)), None):
        if (finish_reason := choice.get("finish_reason")) is not None:
            finish_reason = _finish_reason(finish_reason)
        piece = choice.get("delta") or choice.get("message")  # the latter in whole answers
        if isinstance(piece, dict):
            text, reasoning = _texts(piece.get("content"))
            for name in _THOUGHTS:
                if isinstance(thinking := piece.get(name), str) and thinking:
                    reasoning = thinking
            for name in _THOUGHT_PARTS:
                reasoning = reasoning or "".join(map(_thought, objects_in(piece.get(name))))
            instead = _substitute(piece)
        else:
            text, _ = _texts(choice.get("text"))
        if text and choice is not choices[0]:
            text, instead = "", ("another_choice", text)
    usage = _usage(chunk["usage"]) if "usage" in chunk else None
    timing = _timing(chunk["metrics"], within_ms) if "metrics" in chunk else None
    if not (text or reasoning or instead or finish_reason or usage or timing):
        return None
    return Delta(text, reasoning, finish_reason, usage, timing=timing, instead=instead)


def _finish_reason(value: Any) -> str | None:
    if isinstance(value, str):
        reason = value[:_MOST_OF_A_REASON]
        return "length" if reason.lower() in _LENGTH_REASONS else reason or None
    return UNKNOWN_FINISH


def _texts(content: Any) -> tuple[str, str]:
    """Return the answer and thoughts in ``content``, which is a text or, for some models, parts."""
    if isinstance(content, str):
        return content, ""
    if content is not None and not isinstance(content, list):
        kind = type(content).__name__
        raise TransportError("damaged", f"the answer's text was a {kind}", maybe_paid=True)
    parts = objects_in(content)
    thoughts = [_thought(part) for part in parts]
    answer = [part for part, thought in zip(parts, thoughts, strict=True) if not thought]
    return _text_of(answer), "".join(thoughts)


def _thought(part: dict[str, Any]) -> str:
    """Return the thoughts in one part of a reply (Mistral's, Anthropic's or OpenRouter's form)."""
    kind, inner = part.get("type"), part.get("thinking") or part.get("reasoning")
    if not inner and isinstance(kind, str) and kind.startswith(("reasoning", "thinking")):
        inner = part.get("text") or part.get("summary")
    return inner if isinstance(inner, str) else _text_of(objects_in(inner))


def _substitute(piece: dict[str, Any]) -> tuple[str, str] | None:
    """Return a substitute for an answer: a refusal, or tool calls as JSON."""
    if isinstance(refusal := piece.get("refusal"), str) and refusal:
        return "refusal", refusal
    if calls := piece.get("tool_calls") or piece.get("function_call"):
        return "tool_calls", orjson.dumps(calls).decode()
    return None


def objects_in(content: Any) -> list[dict[str, Any]]:
    """Return the JSON objects of a list; none if it is no list."""
    return [p for p in content if isinstance(p, dict)] if isinstance(content, list) else []


def _text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def read_error(chunk: dict[str, Any]) -> Any:
    """Return the error that an event reports instead of a piece of the answer, else None."""
    if chunk.get("object") == "error" or isinstance(chunk.get("choices"), list):
        return chunk if chunk.get("object") == "error" else chunk.get("error")
    if error := chunk.get("error"):
        return error
    report = chunk.get("base_resp")
    report = report if isinstance(report, dict) else chunk
    words = next((report[name] for name in _WORDS_OF_ERRORS if report.get(name)), None)
    code = report.get("status_code", report.get("code", report.get("error_code")))
    return {"message": words, "code": code} if words and code != 0 else None


def read_embeddings(answer: dict[str, Any], texts: int) -> Embeddings | None:
    """Return the vectors in an /embeddings answer; None unless each text has one."""
    import numpy as np

    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        return None
    # Some servers omit the index and keep the order.
    places = [item.get("index", place) for place, item in enumerate(data)]
    if not all(isinstance(place, int) for place in places) or sorted(places) != list(range(texts)):
        return None
    item_at = dict(zip(places, data, strict=True))
    try:
        vectors = np.array([item_at[n].get("embedding") for n in range(texts)], dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        return None
    if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
        return None
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return Embeddings(vectors, token_count(tokens))


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    read, written = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    prompt = token_count(usage.get("prompt_tokens")) or None
    completion = token_count(usage.get("completion_tokens"))
    cached = token_count(read.get("cached_tokens")) if isinstance(read, dict) else None
    reasoning = token_count(written.get("reasoning_tokens")) if isinstance(written, dict) else None
    total = token_count(usage.get("total_tokens"))
    if prompt is None and completion is None:
        return None
    if prompt is not None and completion is not None:
        uncounted = (total or 0) - prompt - completion
        # Some leave cached tokens out of the prompt, and others the reasoning out of the
        # completion, and bill it all the same.
        if cached and (cached > prompt or cached == uncounted):
            prompt += cached
        elif uncounted > 0:
            reasoning = max(reasoning or 0, uncounted)
            completion += uncounted
    return Usage(prompt, completion, cached, reasoning)


def _timing(metrics: Any, within_ms: float) -> Timing | None:
    """Return a request's times by vLLM's own clock (``--enable-per-request-metrics``)."""
    if not isinstance(metrics, dict):
        return None
    queue, first = metrics.get("queue_time_ms"), metrics.get("time_to_first_token_ms")
    if isinstance(queue, bool) or isinstance(first, bool):
        return None
    if not isinstance(queue, int | float) or not isinstance(first, int | float):
        return None
    # Comparisons with NaN are false, too.
    if not (queue >= 0 and first >= 0 and queue + first <= within_ms):
        return None
    return Timing(float(queue), float(first))


Way = Literal["tokenize", "template", "tokencount"]
"""Ways to count: ``tokenize`` is vLLM's, with the chat template; ``template`` is llama.cpp's
/apply-template and /tokenize; ``tokencount`` is KoboldCpp's, for texts without template."""

_TRIALS = (Prompt("chat", (Message("user", "x"),)), Prompt("completion", text="x"))
"""Prompts for trying a way to count; base models have no chat template and need the second."""

_BYTES_A_BYTE = 32
"""Reply bytes allowed per byte counted, because a reply may hold each token's number and text."""
_TOKENS_BESIDES = 1 << 17
"""Number of tokens larger than any that a template alone adds."""

_Ask = Callable[[str, Sequence[bytes]], Awaitable[dict[str, Any]]]


class ServerCount:
    """A counter that asks the server, in one or two requests per prompt."""

    def __init__(self, way: Way, entry: ModelEntry, probes: Probes) -> None:
        self._way, self._entry, self._probes = way, entry, probes

    async def tokens(self, prompt: Prompt) -> PromptCount | None:
        """Return the count, or None if the server refuses the prompt as too long.

        Raises:
            EngineError: every attempt fails, or the server refuses.
        """
        name = self._entry.name
        backoff = Backoff(attempts=self._entry.max_attempts, deadline_s=self._entry.longest_call_s)
        try:
            return await retry(lambda: self.once(prompt), backoff)
        except TransportError as error:
            raise EngineError(
                f"Model {name!r}: the server no longer counts prompts ({error}). Finished "
                "answers are kept: check the server and run the same command again."
            ) from None
        except RejectedError as error:
            raise EngineError(
                f"Model {name!r}: the server cannot count a prompt ({error}); its chat "
                "template may not support these turns; try another prompt mode, or set the "
                "model's `tokenizer` in models.yaml."
            ) from None

    async def once(self, prompt: Prompt) -> PromptCount | None:
        """Return the count as `tokens` does, in one attempt; raises as `base.Engine.stream`."""
        try:
            return await _count(self._way, self._entry, prompt, self._ask)
        except Exception as raised:
            error = self._probes.errors.sort(raised)
        if isinstance(error, RejectedError) and error.why == "context_overflow":
            return None
        raise error

    async def _ask(self, path: str, parts: Sequence[bytes]) -> dict[str, Any]:
        reply = await self._probes.endpoint.ask(
            path,
            parts,
            within_s=self._entry.timeout_s,
            under_v1=False,
            most=MOST_OF_A_REPLY + _BYTES_A_BYTE * sum(map(len, parts)),
        )
        if reply.status != 200:
            raise StatusError(reply)
        return reply.json()


def counting_way(dialect: Dialect, listed: Mapping[str, Any]) -> Way | None:
    """Return how a server with this ``listed`` model counts prompts, or None if it cannot."""
    if dialect.name == "koboldcpp":
        return "tokencount"
    if dialect.name == "llamacpp":
        return "template"
    if dialect.name in ("vllm", "nim") or token_count(listed.get("max_model_len")):
        return "tokenize"
    return None


async def find_server_count(
    dialect: Dialect, listed: Mapping[str, Any], entry: ModelEntry, probes: Probes
) -> ServerCount | None:
    """Return a counter that was tried on one letter; None if no way to count works."""
    if (way := counting_way(dialect, listed)) is None:
        return None
    for trial in _TRIALS:
        try:
            await _count(way, entry, trial, probes.ask)
            return ServerCount(way, entry, probes)
        except _NoCount:
            continue
    return None


class _NoCount(TransportError):
    """An answer without a token count."""

    def __init__(self) -> None:
        super().__init__("bad_answer", "the answer has no token count")


async def _count(way: Way, entry: ModelEntry, prompt: Prompt, ask: _Ask) -> PromptCount:
    # The messages with the flags of a call, so that the same template is applied.
    def messages(part: Prompt) -> dict[str, Any]:
        return {"messages": part.as_dicts(), **(GO_ON if goes_on(entry, part) else {})}

    is_text = prompt.mode == "completion"
    if way == "tokenize":
        parts = encoded(
            prompt,
            lambda part: {
                "model": entry.model_id,
                **({"prompt": part.text} if is_text else messages(part)),
            },
        )
        return PromptCount(_counted((await ask("/tokenize", parts)).get("count"), prompt))
    if way == "tokencount":
        # Roles and template come on top. Texts that are counted together may merge at the seams,
        # a token each: well within the slack that is left where a count is not exact.
        parts = encoded(prompt, lambda part: {"prompt": "\n".join(part.contents())})
        counted = await ask("/api/extra/tokencount", parts)
        return PromptCount(_counted(counted.get("value"), prompt), exact=False)
    if not is_text:
        text = (await ask("/apply-template", encoded(prompt, messages))).get("prompt")
        if not isinstance(text, str):
            raise _NoCount
        prompt = Prompt("completion", text=text)
    parts = encoded(
        prompt, lambda part: {"content": part.text, "add_special": True, "parse_special": True}
    )
    tokens = (await ask("/tokenize", parts)).get("tokens")
    return PromptCount(_counted(len(tokens) if isinstance(tokens, list) else None, prompt))


def _counted(value: Any, prompt: Prompt) -> int:
    """Return a valid count; no tokenizer splits a text into more tokens than it has bytes."""
    count = token_count(value)
    if not count or count > 4 * sum(map(len, prompt.contents())) + _TOKENS_BESIDES:
        raise _NoCount
    return count
