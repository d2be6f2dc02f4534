"""The wire format of OpenAI-compatible servers, seen from the server's side."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.inference.engines.base import Usage
from contextcliff_dagster.inference.execution.single_request import Answer
from contextcliff_dagster.inference.requests.recipe import Message, Prompt

DEFAULT_MAX_TOKENS = 64
_ROLES = ("system", "user", "assistant")


class Refusal(Exception):
    """A request that is answered with an error; the text is for the client."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def read_body(data: bytes) -> dict[str, Any]:
    """A request's JSON object. Raises Refusal for anything else."""
    try:
        body = json.loads(data)
    except ValueError:
        raise Refusal(400, "The request's body is not JSON.") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The request's body should be a JSON object.")
    return body


def read_prompt(body: Mapping[str, Any], *, chat: bool) -> Prompt:
    """The prompt of a chat or a completion request. Raises Refusal."""
    if not chat:
        if not isinstance(body.get("prompt"), str):
            raise Refusal(400, "`prompt` should be one string.")
        return Prompt("completion", text=body["prompt"])
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "`messages` should be a list with at least one message.")
    turns = [_turn(message) for message in messages]
    begun = bool(body.get("continue_final_message")) and turns[-1].role == "assistant"
    return Prompt("chat_prefill" if begun else "chat", tuple(turns))


def _turn(message: Any) -> Message:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise Refusal(400, f"A message has one of the roles {', '.join(_ROLES)}.")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise Refusal(400, "A message's `content` should be text.")
    return Message(message["role"], content)


def read_limit(body: Mapping[str, Any], served: str) -> int:
    """How many tokens are asked for at most. Raises Refusal for what is not served."""
    if body.get("model") not in (None, served):
        message = f"The model {body['model']!r} does not exist; this server has {served!r}."
        raise Refusal(404, message, "model_not_found")
    if (body.get("n") or 1) != 1:
        raise Refusal(400, "Only n = 1 is served.")
    if body.get("temperature"):
        raise Refusal(400, "This server is greedy: only temperature 0 is served.")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
    if not isinstance(limit, int) or limit < 1:
        raise Refusal(400, f"max_tokens should be a positive whole number, not {limit!r}.")
    return limit


def usage_dict(usage: Usage | None) -> dict[str, Any] | None:
    """Token counts as the clients read them."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": (usage.prompt_tokens or 0) + (usage.completion_tokens or 0),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class Reply:
    """Shapes the reply to one request, whole or in chunks."""

    def __init__(self, model: str, number: int, *, chat: bool) -> None:
        self._chat = chat
        self._head = {"id": f"cmpl-{number}", "created": int(time.time()), "model": model}

    def _choice(self, content: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}

    def _chunk(self, **more: Any) -> bytes:
        """One server-sent event."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        event = json.dumps({**self._head, "object": kind, **more}, ensure_ascii=False)
        return f"data: {event}\n\n".encode()

    def opening(self) -> bytes:
        """The chunk that names the speaker; completions have none."""
        if not self._chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        return self._chunk(choices=[self._choice({"delta": delta}, None)])

    def piece(self, text: str, finish_reason: str | None) -> bytes:
        """A chunk of text."""
        delta = {"content": text} if text else {}
        content = {"delta": delta} if self._chat else {"text": text}
        return self._chunk(choices=[self._choice(content, finish_reason)])

    def usage(self, usage: Usage) -> bytes:
        """The chunk of token counts."""
        return self._chunk(choices=[], usage=usage_dict(usage))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """The reply that is not streamed."""
        message = {"role": "assistant", "content": answer.text}
        content = {"message": message} if self._chat else {"text": answer.text}
        return {
            **self._head,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [self._choice(content, answer.finish_reason)],
            "usage": usage_dict(answer.usage),
        }
