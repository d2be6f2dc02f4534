"""A small OpenAI-compatible server for one of our engines (``contextcliff serve reference-short``).

It serves /v1/models, /v1/chat/completions and /v1/completions (streamed with usage, or whole),
/tokenize and /health. It refuses a prompt that does not fit (never cuts it), and can write a
request log: one JSON line per request, on disk before the model starts.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from contextcliff_dagster.contracts import EngineError, StoreError
from contextcliff_dagster.inference.engines.base import Decoding, Engine, Usage, open_engine
from contextcliff_dagster.inference.execution.single_request import Answer, ask
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model
from contextcliff_dagster.inference.requests.call_plan import utc_now
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.private_files import make_file, make_folder
from contextcliff_dagster.redaction import written_url
from contextcliff_dagster.web_guard import AccessToken, AllowedHosts, WebGuard, listen_on, url_of

DEFAULT_MAX_TOKENS = 64
_ROLES = ("system", "user", "assistant")


class Refusal(Exception):
    """Raised for a request that is answered with an error; the text is for the client."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def read_body(data: bytes) -> dict[str, Any]:
    """Return a request's JSON object. Raises Refusal for anything else."""
    try:
        body = json.loads(data)
    except ValueError:
        raise Refusal(400, "The request's body is not JSON.") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The request's body should be a JSON object.")
    return body


def read_prompt(body: Mapping[str, Any], *, chat: bool) -> Prompt:
    """Return the prompt of a chat or completion request. Raises Refusal."""
    if not chat:
        if not isinstance(body.get("prompt"), str):
            raise Refusal(400, "`prompt` should be one string.")
        return Prompt("completion", text=body["prompt"])
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "`messages` should be a list with at least one message.")
    turns = [_turn(message) for message in messages]
    prefilled = bool(body.get("continue_final_message")) and turns[-1].role == "assistant"
    return Prompt("chat_prefill" if prefilled else "chat", tuple(turns))


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
    """Return the requested maximum number of tokens. Raises Refusal for unsupported requests."""
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
    """Return token counts in the form that clients read."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": (usage.prompt_tokens or 0) + (usage.completion_tokens or 0),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class Reply:
    """The reply to one request, whole or in chunks."""

    def __init__(self, model: str, number: int, *, chat: bool) -> None:
        self._chat = chat
        self._head = {"id": f"cmpl-{number}", "created": int(time.time()), "model": model}

    def _choice(self, content: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}

    def _chunk(self, **more: Any) -> bytes:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        event = json.dumps({**self._head, "object": kind, **more}, ensure_ascii=False)
        return f"data: {event}\n\n".encode()

    def opening(self) -> bytes:
        """Return the chunk that states the speaker's role; empty for completions."""
        if not self._chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        return self._chunk(choices=[self._choice({"delta": delta}, None)])

    def piece(self, text: str, finish_reason: str | None) -> bytes:
        delta = {"content": text} if text else {}
        content = {"delta": delta} if self._chat else {"text": text}
        return self._chunk(choices=[self._choice(content, finish_reason)])

    def usage(self, usage: Usage) -> bytes:
        return self._chunk(choices=[], usage=usage_dict(usage))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the complete reply for a request without streaming."""
        message = {"role": "assistant", "content": answer.text}
        content = {"message": message} if self._chat else {"text": answer.text}
        return {
            **self._head,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [self._choice(content, answer.finish_reason)],
            "usage": usage_dict(answer.usage),
        }


class RequestLog:
    """A log of JSON lines; a received request is flushed to disk before it is handled.

    Raises:
        StoreError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            make_folder(path.parent)
            make_file(path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = os.open(path, flags)
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                os.close(self._fd)
                raise OSError(errno.EINVAL, "it is a pipe or a device")
        except ValueError as error:
            raise StoreError("The request log's path has a NUL character.") from error
        except OSError as error:
            raise StoreError(
                f"The request log {path} cannot be written ({error.strerror}); choose another path."
            ) from error

    def write(self, event: str, number: int, **more: str) -> None:
        line = {"at": utc_now(), "event": event, "number": number, **more}
        os.write(self._fd, (json.dumps(line) + "\n").encode())
        if event == "received":
            os.fsync(self._fd)


class _Service:
    """Request handlers for one engine."""

    def __init__(self, name: str, engine: Engine, log: RequestLog | None, delay_ms: float) -> None:
        self._name, self._engine, self._log, self._delay_s = name, engine, log, delay_ms / 1000
        self._numbers = itertools.count(1)

    async def models(self, _: Request) -> Response:
        model = {
            "id": self._name,
            "object": "model",
            "created": 0,
            "owned_by": "contextcliff",
            "max_model_len": self._engine.window_tokens,
            "meta": {"identity": self._engine.identity().hash},
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def tokenize(self, request: Request) -> Response:
        body = read_body(await request.body())
        count = await self._engine.count_prompt_tokens(read_prompt(body, chat="messages" in body))
        tokens = count.tokens if count else None
        return JSONResponse({"count": tokens, "max_model_len": self._engine.window_tokens})

    async def chat(self, request: Request) -> Response:
        return await self._complete(request, chat=True)

    async def completions(self, request: Request) -> Response:
        return await self._complete(request, chat=False)

    async def _complete(self, request: Request, *, chat: bool) -> Response:
        body = read_body(await request.body())
        prompt = read_prompt(body, chat=chat)
        number = next(self._numbers)
        if self._log:
            path = request.url.path
            self._log.write("received", number, path=path, prompt_hash=prompt.hash)
        decoding = Decoding(await self._fitting_limit(body, prompt))
        await asyncio.sleep(self._delay_s)
        reply = Reply(self._name, number, chat=chat)
        if body.get("stream"):
            with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
            events = self._events(prompt, decoding, number, reply, with_usage=with_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        answer = await ask(self._engine, prompt, decoding)
        self._log_answer(number)
        return JSONResponse(reply.whole(answer))

    async def _fitting_limit(self, body: Mapping[str, Any], prompt: Prompt) -> int:
        limit = read_limit(body, self._name)
        count, window = await self._engine.count_prompt_tokens(prompt), self._engine.window_tokens
        if count and window and count.tokens + limit > window:
            raise Refusal(
                400,
                f"This model's maximum context length is {window} tokens. However, you requested "
                f"{count.tokens + limit} tokens ({count.tokens} in the prompt, {limit} for the "
                "completion). Please reduce the length.",
                "context_length_exceeded",
            )
        return limit

    def _log_answer(self, number: int) -> None:
        if self._log:
            self._log.write("answered", number)

    async def _events(
        self, prompt: Prompt, decoding: Decoding, number: int, reply: Reply, *, with_usage: bool
    ) -> AsyncIterator[bytes]:
        yield reply.opening()
        async for delta in self._engine.stream(prompt, decoding):
            if delta.text or delta.finish_reason:
                yield reply.piece(delta.text, delta.finish_reason)
            if delta.usage and with_usage:
                yield reply.usage(delta.usage)
        yield b"data: [DONE]\n\n"
        self._log_answer(number)


def make_app(
    name: str, engine: Engine, log: RequestLog | None = None, delay_ms: float = 0.0
) -> Starlette:
    """Return the ASGI application; the engine starts and stops with it."""
    service = _Service(name, engine, log, delay_ms)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        body = {"message": str(error), "type": "invalid_request_error", "param": None}
        return JSONResponse({"error": {**body, "code": error.code}}, status_code=error.status)

    routes = [
        Route("/v1/models", service.models),
        Route("/v1/chat/completions", service.chat, methods=["POST"]),
        Route("/v1/completions", service.completions, methods=["POST"]),
        Route("/tokenize", service.tokenize, methods=["POST"]),
        Route("/health", service.health),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Refusal: refused})


@dataclass(frozen=True, slots=True)
class Access:
    """The server's address, and who may use it.

    Args:
        host: the address; ``127.0.0.1`` serves only this machine.
        port: the port; 0 takes a free one.
        allow_hosts: other host names that clients may use.
        token: the API key that clients need, or None.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_hosts: tuple[str, ...] = ()
    token: str | None = None


def serve(
    model: str | ModelEntry,
    access: Access = Access(),
    *,
    request_log: Path | None = None,
    delay_ms: float = 0.0,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve a model until interrupted; ``on_ready`` gets the base URL.

    Raises:
        StudyError: there is no such model.
        EngineError: the model does not run in this process, or the port is taken.
    """
    entry = get_model(model) if isinstance(model, str) else model
    if entry.engine != "reference":
        raise EngineError(
            f"Model {entry.name!r} is already served by "
            f"{written_url(entry.base_url or entry.engine)}; `serve` is for engine 'reference'."
        )
    engine = open_engine(entry.model_copy(update={"concurrency": 2}))
    log = RequestLog(request_log) if request_log else None
    listener = listen_on(access.host, [access.port])
    on_ready(f"{url_of(access.host, listener.getsockname()[1])}/v1")
    guarded = WebGuard(
        make_app(entry.name, engine, log, delay_ms),
        AllowedHosts(access.host, access.allow_hosts),
        AccessToken(access.token) if access.token else None,
        frozenset({"/health"}),
        "send it as the API key",
    )
    config = uvicorn.Config(guarded, log_level="warning", access_log=False, proxy_headers=False)
    uvicorn.Server(config).run(sockets=[listener])
