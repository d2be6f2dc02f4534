"""Any OpenAI-compatible endpoint: chat completions or completions, streamed.

The client never retries by itself (a re-sent request may be paid twice without a trace); faults
are sorted into those worth another attempt, those of one request, and those of all requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engine import (
    Decoding,
    Delta,
    Identity,
    PromptCount,
    TransportError,
    Usage,
)
from contextcliff_dagster.inference.engines.openai_faults import FaultSorter
from contextcliff_dagster.inference.models import ModelEntry
from contextcliff_dagster.inference.recipe import Prompt
from contextcliff_dagster.inference.redact import public_url, redact

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from contextcliff_dagster.sampling.tokenizers import Tokenizer

CONNECT_SECONDS = 5.0
START_ATTEMPTS = 3
START_SECONDS = 15.0
_TOLD_FIELDS = ("max_model_len", "root", "meta")
"""What servers say in /v1/models that decides answers (vLLM: max_model_len, root; llama.cpp:
meta)."""


def declared_openai_identity(entry: ModelEntry) -> dict[str, Any]:
    """The part of the identity that the entry itself gives."""
    fields: dict[str, Any] = {
        "engine": "openai",
        "model_id": entry.model_id,
        "dtype": entry.dtype,
        "quantization": entry.quantization,
        "kv_cache_dtype": entry.kv_cache_dtype,
        "rope_scaling": entry.rope_scaling,
        "declared_window_tokens": entry.window_tokens,
    }
    # Where nobody says which weights stand behind the address, the address is all there is to tell
    # two servers apart.
    if entry.revision:
        fields["revision"] = entry.revision
    else:
        fields["endpoint"] = public_url(entry.resolved_base_url())
    return {name: value for name, value in fields.items() if value is not None}


class OpenAIEngine:
    """See `engine.Engine`."""

    def __init__(self, entry: ModelEntry) -> None:
        self._entry = entry
        self._base_url = entry.resolved_base_url()
        self._secrets: list[str] = (
            [self._base_url] if public_url(self._base_url) != self._base_url.rstrip("/") else []
        )
        self._client: AsyncOpenAI | None = None
        self._told: dict[str, Any] = {}
        self._tokenizer: Tokenizer | None = None
        self._faults = FaultSorter(entry.name, public_url(self._base_url), self._redact)

    def _redact(self, text: str) -> str:
        return redact(text, self._secrets)

    def _secret(self, variable: str, what: str) -> str:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise EngineError(
                f"Model {self._entry.name!r} takes {what} from the environment variable "
                f"{variable}, which is not set; set it."
            )
        self._secrets.append(value)
        return value

    @property
    def window_tokens(self) -> int | None:
        """The smaller of what the entry and the server say; None where neither does."""
        return self.identity().window_tokens

    async def start(self) -> None:
        """Make the client and ask the server what it serves."""
        entry = self._entry
        key = self._secret(entry.api_key_env, "its key") if entry.api_key_env else None
        headers = {
            name: self._secret(variable, f"header {name}")
            for name, variable in entry.headers_env.items()
        }
        if entry.tokenizer:
            from contextcliff_dagster.sampling.tokenizers import open_tokenizer

            self._tokenizer = open_tokenizer(entry.tokenizer)
        self._client = self._make_client(key, headers)
        self._told = await self._ask_models()

    def _make_client(self, key: str | None, headers: dict[str, str]) -> AsyncOpenAI:
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        entry = self._entry

        async def send_no_key(request: httpx2.Request) -> None:
            # The client insists on some key, and would take somebody else's from OPENAI_API_KEY.
            for header in ("Authorization", "OpenAI-Organization", "OpenAI-Project"):
                if header in request.headers and header.lower() not in own_headers:
                    del request.headers[header]

        own_headers = {header.lower() for header in headers}
        timeout = httpx2.Timeout(entry.timeout_s, connect=min(CONNECT_SECONDS, entry.timeout_s))
        return AsyncOpenAI(
            base_url=self._base_url,
            api_key=key or "none",
            default_headers=headers,
            max_retries=0,
            timeout=timeout,
            http_client=DefaultAsyncHttpxClient(
                timeout=timeout,
                event_hooks={"request": [] if key else [send_no_key]},
                # Long-kept connections race with the server closing them.
                limits=httpx2.Limits(max_connections=entry.concurrency + 2, keepalive_expiry=2),
            ),
        )

    async def _ask_models(self) -> dict[str, Any]:
        """What /v1/models says about our model; {} where the server has no such list.

        A hiccup is retried: an identity that depends on luck would make a campaign refuse itself.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                listed = await self._list_models()
            except TransportError as fault:
                if fault.kind == "connect" or attempt == START_ATTEMPTS:
                    raise self._faults.unreachable(fault) from None
                await asyncio.sleep(0.5 * attempt)
                continue
            mine = next((item for item in listed if item.get("id") == self._entry.model_id), None)
            if mine is None and len(listed) == 1:
                mine = listed[0]  # servers of one model answer to any name
            return (
                {name: mine[name] for name in _TOLD_FIELDS if mine.get(name) is not None}
                if mine
                else {}
            )
        raise AssertionError("not reached")

    async def _list_models(self) -> list[dict[str, Any]]:
        assert self._client is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                answer = await self._client.get("/models", cast_to=object)
        except TimeoutError:
            raise TransportError("timeout", f"no answer within {START_SECONDS:g} s") from None
        except Exception as fault:
            if getattr(fault, "status_code", None) in {400, 404, 405, 422, 501}:
                return []
            raise self._faults.sort(fault, sent=False) from None
        data = answer.get("data") if isinstance(answer, dict) else None
        return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []

    def identity(self) -> Identity:
        """What the entry declares and the server tells."""
        return Identity(
            {
                **declared_openai_identity(self._entry),
                **{f"server_{k}": v for k, v in self._told.items()},
            }
        )

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """The texts under the entry's ``tokenizer``; the server's chat template comes on top."""
        if self._tokenizer is None:
            return None
        # In a thread: half a megabyte takes long enough to be seen in the times of other calls.
        counts = await asyncio.to_thread(
            lambda count: [count(text) for text in prompt.contents()], self._tokenizer.count
        )
        tokens = sum(counts)
        return PromptCount(tokens, exact=False)

    async def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """One streamed completion; without a finish reason at its end it is a transport fault."""
        sent = False
        finish_reason: str | None = None
        chunks = 0
        try:
            async with asyncio.timeout(self._entry.timeout_s):
                response = await self._create(prompt, decoding)
                sent = True
                async with response:
                    async for chunk in response:
                        chunks += 1
                        delta = _delta(chunk)
                        finish_reason = delta.finish_reason or finish_reason
                        yield delta
        except (GeneratorExit, asyncio.CancelledError):
            raise
        except TimeoutError:
            raise TransportError(
                "timeout", f"no complete answer within {self._entry.timeout_s:g} s", maybe_paid=True
            ) from None
        except Exception as fault:
            raise self._faults.sort(fault, sent=sent) from None
        if chunks == 0:
            raise TransportError(
                "no_stream", "the answer with status 200 was no event stream", maybe_paid=True
            )
        if finish_reason is None:
            raise TransportError(
                "cut_stream", "the answer's stream ended before its end", maybe_paid=True
            )
        if finish_reason == "error":
            raise TransportError(
                "server_error", "the server ended the answer with an error", maybe_paid=True
            )

    async def _create(self, prompt: Prompt, decoding: Decoding) -> Any:
        assert self._client is not None, "start() comes first"
        quirks = self._entry.quirks
        body: dict[str, Any] = {"model": self._entry.model_id, "stream": True}
        if quirks.stream_usage == "send":
            body["stream_options"] = {"include_usage": True}
        if quirks.temperature == "send":
            body["temperature"] = decoding.temperature
        if prompt.mode == "completion":
            return await self._client.completions.create(
                **body, prompt=prompt.text, max_tokens=decoding.max_output_tokens
            )
        body[quirks.max_tokens_parameter] = decoding.max_output_tokens
        if prompt.mode == "chat_prefill" and quirks.prefill == "continue_final_message":
            body["extra_body"] = {"continue_final_message": True, "add_generation_prompt": False}
        return await self._client.chat.completions.create(**body, messages=prompt.as_dicts())  # type: ignore[arg-type]


def _delta(chunk: Any) -> Delta:
    """A chunk of either interface; servers leave out what they please."""
    choices = getattr(chunk, "choices", None) or []
    text = reasoning = ""
    finish_reason = None
    if choices:
        choice = choices[0]
        finish_reason = getattr(choice, "finish_reason", None)
        piece = getattr(choice, "delta", None)
        if piece is not None:
            text = piece.content or ""
            extra = piece.model_extra or {}
            reasoning = extra.get("reasoning_content") or extra.get("reasoning") or ""
        else:
            text = getattr(choice, "text", None) or ""
    return Delta(
        text,
        reasoning if isinstance(reasoning, str) else "",
        finish_reason,
        _usage(getattr(chunk, "usage", None)),
    )


def _usage(usage: Any) -> Usage | None:
    if usage is None or getattr(usage, "prompt_tokens", None) is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    return Usage(
        usage.prompt_tokens,
        getattr(usage, "completion_tokens", None),
        getattr(details, "cached_tokens", None),
    )
