"""An engine for any OpenAI-compatible endpoint: chat completions or completions, streamed.

The client never retries by itself, because a re-sent request may be paid twice without a trace.
Errors are sorted by whether to retry, to give up this request, or to give up all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import (
    UNKNOWN_FINISH,
    WHO_ANSWERED,
    Decoding,
    Delta,
    Embeddings,
    PromptCount,
    TransportError,
)
from contextcliff_dagster.inference.engines.openai.batch_interface import BatchInterface
from contextcliff_dagster.inference.engines.openai.error_mapping import ErrorMapper
from contextcliff_dagster.inference.engines.openai.http_client import (
    DONE,
    MOST_OF_A_REPLY,
    Endpoint,
    StatusError,
    Whole,
)
from contextcliff_dagster.inference.engines.openai.server_detection import Dialect, Probes, detect
from contextcliff_dagster.inference.engines.openai.wire_format import (
    ServerCount,
    counting_way,
    find_server_count,
    objects_in,
    read_delta,
    read_embeddings,
    read_error,
    read_json,
    request,
)
from contextcliff_dagster.inference.models.entry import Identity, request_headers
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import MARK, Prompt
from contextcliff_dagster.redaction import hide, public_url, redact, url_secrets
from contextcliff_dagster.retry import QUESTIONS, retry
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer, open_tokenizer

START_SECONDS = 15.0
LAST_SECONDS = 30.0
"""Maximum time between the end of an answer and the usage that follows it, in seconds."""
_BYTES_A_TOKEN = 1024
"""Bytes allowed per streamed token, whose event has 200 to 400 bytes. Reasoning beyond the
output limit fits into `MOST_OF_A_REPLY`."""
_BYTES_A_VECTOR = 512 * 1024
_LISTED_FIELDS = ("max_model_len", "root", "meta")
"""Fields of /v1/models that affect answers (vLLM: max_model_len, root; llama.cpp: meta)."""


def declared_openai_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return the part of the identity that the entry itself declares."""
    fields: dict[str, Any] = {
        "engine": "openai",
        "model_id": entry.model_id,
        "dtype": entry.dtype,
        "quantization": entry.quantization,
        "kv_cache_dtype": entry.kv_cache_dtype,
        "rope_scaling": entry.rope_scaling,
        "declared_window_tokens": entry.window_tokens,
        # Included only if unusual: these settings change the answers.
        "temperature": "omitted" if entry.quirks.temperature == "omit" else None,
        "top_k": "omitted" if entry.quirks.top_k == "omit" else None,
        "seed": "omitted" if entry.quirks.seed == "omit" else None,
        "prefill": entry.quirks.prefill if entry.quirks.prefill == "last_message" else None,
        "request": entry.asked_besides or None,
        "headers": entry.extra_headers or None,
        "revision": entry.revision or None,
        # If the weights behind the address are unknown, only the address distinguishes two
        # servers.
        "endpoint": None if entry.revision else public_url(entry.resolved_base_url()),
    }
    return {name: value for name, value in fields.items() if value is not None}


class OpenAIEngine:
    """An engine (see `base.Engine`) that calls an OpenAI-compatible server."""

    def __init__(self, entry: ModelEntry, own: Dialect | None = None) -> None:
        """Set ``own`` to the kind of server if the caller started it on this machine. Such a server
        is not probed for its kind, counts the prompts, and is reached without a proxy."""
        self._entry, self._own = entry, own
        self._base_url = entry.resolved_base_url()
        self._secrets = url_secrets(self._base_url)
        self._endpoint: Endpoint | None = None
        self.listed: list[dict[str, Any]] = []
        self._identifying: dict[str, Any] = {}
        self.dialect = own or Dialect()
        self._tokenizer: Tokenizer | None = None
        self.server_count: ServerCount | None = None
        self._errors = ErrorMapper(entry, public_url(self._base_url), self._redact)

    def _redact(self, text: str) -> str:
        return redact(text, self._secrets)

    @property
    def window_tokens(self) -> int | None:
        """The smaller of the entry's and the server's windows; None if neither has one."""
        return self.identity().window_tokens

    async def start(self) -> None:
        """Open the client, ask the server for its models, and detect its kind."""
        entry = self._entry
        headers = request_headers(entry, f"Model {entry.name!r}", EngineError)
        secret = [value for name, value in headers.items() if name not in entry.extra_headers]
        self._secrets += [value.removeprefix("Bearer ") for value in secret]
        has_key = "authorization" in map(str.lower, headers)
        if has_key and urlsplit(self._base_url).username is not None:
            raise EngineError(
                f"Model {entry.name!r} has a user in `base_url` and a key, but a request can carry "
                "only one of them; remove the other from models.yaml."
            )
        if entry.tokenizer and not self._own:
            self._tokenizer = open_tokenizer(entry.tokenizer)
        self._endpoint = Endpoint(
            self._base_url,
            headers,
            timeout_s=entry.timeout_s,
            connections=entry.concurrency + 2,
            direct=self._own is not None,
            verify=entry.ca_bundle or entry.verify,
        )
        self._errors.proxy = self._endpoint.proxy
        listed = await self._ask_models() if entry.quirks.model_list == "send" else {}
        self._identifying = {n: listed[n] for n in _LISTED_FIELDS if listed.get(n) is not None}
        probes = self.probes = Probes(self._endpoint, self._errors)
        if self._own:
            way = counting_way(self._own, listed)
            self.server_count = way and ServerCount(way, entry, probes)
        elif entry.quirks.probes == "send":
            try:
                self.dialect = await detect(probes, listed)
                if self._tokenizer is None:
                    self.server_count = await find_server_count(self.dialect, listed, entry, probes)
            except TransportError as error:
                raise EngineError(
                    f"Model {entry.name!r}: {public_url(self._base_url)} does not tell what kind "
                    f"of server it is ({error}); run the same command again, or set `quirks: "
                    "{probes: omit}` for this model in models.yaml."
                ) from None

    async def _ask_models(self) -> dict[str, Any]:
        """Return our model's item of /v1/models, or {} if the server has no list.

        Failures are retried, because an identity that depends on luck would make a campaign fail.
        """
        try:
            listed = self.listed = await retry(self._list_models, QUESTIONS)
        except TransportError as error:
            raise self._errors.unreachable(error) from None
        model = next((item for item in listed if item.get("id") == self._entry.model_id), None)
        if model is None and len(listed) == 1:
            model = listed[0]  # servers with one model accept any name
        return model or {}

    async def _list_models(self) -> list[dict[str, Any]]:
        assert self._endpoint is not None
        try:
            reply = await self._endpoint.ask("/models", within_s=START_SECONDS)
        except Exception as error:
            if type(error) is TimeoutError:
                error = TransportError("timeout", f"no answer within {START_SECONDS:g} s")
            mapped = self._errors.sort(error)
            if isinstance(mapped, TransportError) and mapped.kind == "connect":
                raise self._errors.unreachable(mapped) from None  # no server: it does not pass
            raise mapped from None
        if reply.status in {400, 404, 405, 422, 501}:
            return []
        if reply.status != 200:
            raise self._errors.sort(StatusError(reply))
        return objects_in(reply.json().get("data"))

    def identity(self) -> Identity:
        """Return the fields that the entry declares and the server reports."""
        fields = declared_openai_identity(self._entry)
        for name, value in {**self._identifying, **self.dialect.reported}.items():
            fields[f"server_{name}"] = self._without_secrets(value)
        return Identity(fields)

    def _without_secrets(self, value: Any) -> Any:
        """Return ``value`` without secrets, because some servers echo what they were sent."""
        if isinstance(value, str):
            return hide(value, self._secrets)
        if isinstance(value, list):
            return [self._without_secrets(item) for item in value]
        if isinstance(value, dict):
            return {name: self._without_secrets(item) for name, item in value.items()}
        return value

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        """Return the texts' tokens under the entry's ``tokenizer``, without the template. If it has
        none, return the server's count or None."""
        if self._tokenizer is None:
            return await self.server_count.tokens(prompt) if self.server_count else None
        # In a thread: half a megabyte takes long enough to be seen in the times of other calls.
        return PromptCount(await asyncio.to_thread(self._count, self._tokenizer, prompt), False)

    def _count(self, tokenizer: Tokenizer, prompt: Prompt) -> int:
        if not prompt.document or not prompt.outline:
            return sum(map(tokenizer.count, prompt.contents()))
        # The document is counted once. Pieces of text may merge at its ends, a token or two: well
        # within the slack that is left where a count is not exact.
        pieces = [piece for text in prompt.outline.contents() for piece in text.split(MARK)]
        document = prompt.document.count(tokenizer.fingerprint, tokenizer.count)
        return document + sum(tokenizer.count(piece) for piece in pieces if piece)

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return vectors from /embeddings in one request; the server decides whether it fits."""
        assert self._endpoint is not None, "start() comes first"
        if not texts:
            raise ValueError("there is no text to embed")
        body = {"model": self._entry.model_id, "input": list(texts), "encoding_format": "float"}
        try:
            reply = await self._endpoint.ask(
                "/embeddings",
                [orjson.dumps(body)],
                within_s=self._entry.timeout_s,
                most=MOST_OF_A_REPLY + len(texts) * _BYTES_A_VECTOR,
            )
            if reply.status != 200:
                raise StatusError(reply)
        except Exception as error:
            raise self._errors.sort(error) from None
        if (embeddings := read_embeddings(reply.json(), len(texts))) is None:
            raise TransportError(
                "bad_answer", "the answer lacks a vector for some texts", maybe_paid=True
            )
        return embeddings

    def batches(self) -> BatchInterface:
        """Return the batch interface of the provider; `start` comes first."""
        assert self._endpoint is not None, "start() comes first"
        return BatchInterface(self._entry, self._endpoint, self._errors)

    async def stop(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.close()
            self._endpoint = None

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        """Stream one completion. Errors after the finish reason lose the usage, not the answer."""
        assert self._endpoint is not None, "start() comes first"
        finish_reason, chunks, began, bound = None, 0, False, decoding.schema is not None
        last_reporter: dict[str, Any] = {}
        path_and_body = request(self._entry, prompt, decoding, self.dialect.name)
        most = MOST_OF_A_REPLY + decoding.max_output_tokens * _BYTES_A_TOKEN
        now = asyncio.get_running_loop().time
        started = time.perf_counter()
        try:
            async with (
                asyncio.timeout(self._entry.timeout_s) as limit,
                aclosing(self._endpoint.events(*path_and_body, most)) as events,
            ):
                async for event in events:
                    if event == DONE and began and not finish_reason:
                        finish_reason = UNKNOWN_FINISH
                        yield Delta(finish_reason=finish_reason)
                    if event.lstrip()[:1] != b"{":
                        continue  # a sign of life, or nothing that belongs to an answer
                    chunk = read_json(bytes(event))
                    if reported := read_error(chunk):
                        raise self._errors.in_stream(reported, sent=began)
                    chunks += 1
                    reporter = {name: chunk[name] for name in WHO_ANSWERED if chunk.get(name)}
                    if reporter and reporter != last_reporter:
                        last_reporter = {**last_reporter, **reporter}
                        yield Delta(extra=self._without_secrets(last_reporter))
                    if delta := read_delta(chunk, (time.perf_counter() - started) * 1000):
                        if isinstance(event, Whole):
                            ended = delta.finish_reason or (UNKNOWN_FINISH if delta.text else None)
                            delta = replace(delta, whole=True, finish_reason=ended)
                        began = began or bool(delta.text or delta.reasoning or delta.instead)
                        if delta.finish_reason:
                            finish_reason = delta.finish_reason
                            self._errors.answered = True
                            limit.reschedule(min(limit.when() or 0.0, now() + LAST_SECONDS))
                        yield delta
        except Exception as error:
            if finish_reason not in (None, "error"):
                return
            if type(error) is not TimeoutError:
                raise self._errors.sort(error, sent=chunks > 0, constrained=bound) from None
            raise TransportError(
                "timeout", f"no complete answer within {self._entry.timeout_s:g} s", maybe_paid=True
            ) from None
        if chunks == 0:
            kind_and_message = "no_stream", "the answer with status 200 was not an event stream"
        elif finish_reason is None:
            kind_and_message = "cut_stream", "the answer's stream ended early"
        elif finish_reason == "error":
            kind_and_message = "server_error", "the server ended the answer with an error"
        else:
            return
        raise TransportError(*kind_and_message, maybe_paid=True)
