"""Faults of an OpenAI-compatible endpoint, sorted by what to do about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import RejectedError, TransportError
from contextcliff_dagster.inference.engines.openai.http_client import Reply, StatusError
from contextcliff_dagster.inference.engines.openai.parameter_hints import wanted_setting
from contextcliff_dagster.inference.models.registry import ModelEntry
from contextcliff_dagster.retry import retry_after_s

_OVERFLOW_SIGNS = (
    "maximum context length",
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context",
    "context length exceeded",
    "context window",
    "prompt is too long",
    "too many tokens",
    "longer than the maximum model length",
)


class FaultSorter:
    """Turns what the client raises into TransportError, RejectedError or EngineError.

    ``redact`` is applied to whatever the server said: some echo the key.
    """

    def __init__(self, entry: ModelEntry, endpoint: str, redact: Callable[[str], str]) -> None:
        self._model, self._quirks = entry.name, entry.quirks
        self._endpoint, self._redact = endpoint, redact

    def sort(self, fault: Exception, *, sent: bool) -> Exception:
        """``sent``: the response had begun, so the model may have worked."""
        import aiohttp

        if isinstance(fault, (TransportError, RejectedError, EngineError)):
            return fault
        if isinstance(fault, StatusError):
            return self._status(fault.reply)
        if isinstance(fault, json.JSONDecodeError):
            return TransportError(
                "broken_json", "the server's answer was broken JSON", maybe_paid=True
            )
        if isinstance(fault, aiohttp.InvalidURL):
            return EngineError(
                f"Model {self._model!r}: {self._endpoint} is no address; correct `base_url` in "
                "models.yaml."
            )
        if isinstance(fault, aiohttp.ConnectionTimeoutError):
            return TransportError(
                "connect", f"{self._endpoint} did not take the connection in time"
            )
        if isinstance(fault, (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)):
            return TransportError(
                "connect", self._redact(f"no connection to {self._endpoint}: {fault}")
            )
        name = type(fault).__name__
        if isinstance(fault, TimeoutError):
            return TransportError("timeout", "the server did not answer in time", maybe_paid=True)
        if isinstance(fault, (aiohttp.ClientError, OSError)):
            when = "while the answer came" if sent else "before an answer came"
            return TransportError("drop", f"the connection broke {when} ({name})", maybe_paid=True)
        said = self._redact(str(fault))
        return TransportError(
            "bad_answer", f"the answer could not be read ({name}: {said})", maybe_paid=True
        )

    def in_stream(self, error: Any) -> Exception:
        """An error that the server tells after it has begun to answer with status 200."""
        told = error if isinstance(error, dict) else {"message": str(error)}
        said = self._redact(str(told.get("message") or told))
        lower = f"{told.get('code') or ''} {told.get('type') or ''} {said}".lower()
        if any(sign in lower for sign in _OVERFLOW_SIGNS):
            return RejectedError(said, overflow=True)
        if "insufficient_quota" in lower:
            return self._quota(said)
        return TransportError(
            "stream_error", f"the server broke off with an error: {said}", maybe_paid=True
        )

    def _quota(self, said: str) -> EngineError:
        return EngineError(
            f"Model {self._model!r} at {self._endpoint}: the account's quota is used up ({said}); "
            "top it up and run the same command to go on."
        )

    def unreachable(self, fault: TransportError) -> EngineError:
        """The sentence for a server that does not even say what it serves."""
        return EngineError(
            f"Model {self._model!r}: {self._endpoint} cannot be reached ({fault}); start the "
            "server, or correct `base_url` "
            "in models.yaml, and run the same command again."
        )

    def _status(self, reply: Reply) -> Exception:
        status = reply.status
        body = reply.json()
        told = body.get("error", body) if isinstance(body, dict) else {}
        if not isinstance(told, dict):
            told = {"message": str(told)}
        code = f"{told.get('code') or ''} {told.get('type') or ''}"
        text = told.get("message") or told.get("detail") or reply.data.decode(errors="replace")
        said = self._redact(str(text))
        lower = f"{code} {said}".lower()
        where = f"Model {self._model!r} at {self._endpoint}"
        if status == 402 or "insufficient_quota" in lower:
            return self._quota(f"status {status}: {said}")
        if 300 <= status < 400:
            target = self._redact(reply.headers.get("location", "nowhere"))
            return EngineError(
                f"{where} sends on to another address ({status}: {target}); write the right one "
                "into `base_url` in models.yaml."
            )
        if status == 401:
            return EngineError(
                f"{where}: the key is refused (401: {said}); check the environment variable that "
                "`api_key_env` names."
            )
        if status == 403:
            return EngineError(
                f"{where}: access is refused (403: {said}); ask for access to this model, or use "
                "another key."
            )
        if status == 404:
            return EngineError(
                f"{where}: there is no such model or address (404: {said}); correct `model_id` "
                "or `base_url` in models.yaml."
            )
        if status in {408, 409, 425, 429} or status >= 500:
            wait = retry_after_s(reply.headers)
            return TransportError(
                f"http_{status}",
                f"status {status}: {said}",
                maybe_paid=status
                in {502, 504},  # a gateway that gave up may hide a model that worked
                status=status,
                retry_after_s=wait,
            )
        if status == 413 or any(sign in lower for sign in _OVERFLOW_SIGNS):
            return RejectedError(f"status {status}: {said}", status=status, overflow=True)
        if "could not finish the message" in lower:
            said += "; raise `prompt: max_output_tokens` of the study"
        elif wanted := wanted_setting(told, said, self._quirks):
            return EngineError(
                f"{where} refuses a parameter (status {status}: {said}); {wanted}, and run the "
                "same command again."
            )
        return RejectedError(f"status {status}: {said}", status=status)
