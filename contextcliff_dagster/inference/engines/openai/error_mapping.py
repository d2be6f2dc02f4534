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


class ErrorMapper:
    """Turns what the client raises into TransportError, RejectedError or EngineError.

    ``redact`` is applied to whatever the server said: some echo the key.
    """

    def __init__(self, entry: ModelEntry, endpoint: str, redact: Callable[[str], str]) -> None:
        self._model, self._quirks = entry.name, entry.quirks
        self._endpoint, self._redact = endpoint, redact

    def sort(self, error: Exception, *, sent: bool) -> Exception:
        """``sent``: the response had begun, so the model may have worked."""
        import aiohttp

        if isinstance(error, (TransportError, RejectedError, EngineError)):
            return error
        if isinstance(error, StatusError):
            return self._status(error.reply)
        if isinstance(error, json.JSONDecodeError):
            return TransportError(
                "broken_json", "the server's answer was broken JSON", maybe_paid=True
            )
        if isinstance(error, aiohttp.InvalidURL):
            return EngineError(
                f"Model {self._model!r}: {self._endpoint} is no address; correct `base_url` in "
                "models.yaml."
            )
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return TransportError(
                "connect", f"{self._endpoint} did not take the connection in time"
            )
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)):
            return TransportError(
                "connect", self._redact(f"no connection to {self._endpoint}: {error}")
            )
        name = type(error).__name__
        if isinstance(error, TimeoutError):
            return TransportError("timeout", "the server did not answer in time", maybe_paid=True)
        if isinstance(error, (aiohttp.ClientError, OSError)):
            when = "while the answer came" if sent else "before an answer came"
            return TransportError("drop", f"the connection broke {when} ({name})", maybe_paid=True)
        message = self._redact(str(error))
        return TransportError(
            "bad_answer", f"the answer could not be read ({name}: {message})", maybe_paid=True
        )

    def in_stream(self, reported: Any) -> Exception:
        """An error that the server tells after it has begun to answer with status 200."""
        detail = reported if isinstance(reported, dict) else {"message": str(reported)}
        message = self._redact(str(detail.get("message") or detail))
        lower = f"{detail.get('code') or ''} {detail.get('type') or ''} {message}".lower()
        if any(sign in lower for sign in _OVERFLOW_SIGNS):
            return RejectedError(message, overflow=True)
        if "insufficient_quota" in lower:
            return self._quota(message)
        return TransportError(
            "stream_error", f"the server broke off with an error: {message}", maybe_paid=True
        )

    def _quota(self, message: str) -> EngineError:
        return EngineError(
            f"Model {self._model!r} at {self._endpoint}: the account's quota is used up "
            f"({message}); top it up and run the same command to go on."
        )

    def unreachable(self, error: TransportError) -> EngineError:
        """The sentence for a server that does not even say what it serves."""
        return EngineError(
            f"Model {self._model!r}: {self._endpoint} cannot be reached ({error}); start the "
            "server, or correct `base_url` "
            "in models.yaml, and run the same command again."
        )

    def _status(self, reply: Reply) -> Exception:
        status = reply.status
        body = reply.json()
        detail = body.get("error", body) if isinstance(body, dict) else {}
        if not isinstance(detail, dict):
            detail = {"message": str(detail)}
        code = f"{detail.get('code') or ''} {detail.get('type') or ''}"
        text = detail.get("message") or detail.get("detail") or reply.data.decode(errors="replace")
        message = self._redact(str(text))
        lower = f"{code} {message}".lower()
        where = f"Model {self._model!r} at {self._endpoint}"
        if status == 402 or "insufficient_quota" in lower:
            return self._quota(f"status {status}: {message}")
        if 300 <= status < 400:
            target = self._redact(reply.headers.get("location", "nowhere"))
            return EngineError(
                f"{where} sends on to another address ({status}: {target}); write the right one "
                "into `base_url` in models.yaml."
            )
        if status == 401:
            return EngineError(
                f"{where}: the key is refused (401: {message}); check the environment variable "
                "that `api_key_env` names."
            )
        if status == 403:
            return EngineError(
                f"{where}: access is refused (403: {message}); ask for access to this model, or "
                "use another key."
            )
        if status == 404:
            return EngineError(
                f"{where}: there is no such model or address (404: {message}); correct `model_id` "
                "or `base_url` in models.yaml."
            )
        if status in {408, 409, 425, 429} or status >= 500:
            wait = retry_after_s(reply.headers)
            return TransportError(
                f"http_{status}",
                f"status {status}: {message}",
                maybe_paid=status
                in {502, 504},  # a gateway that gave up may hide a model that worked
                status=status,
                retry_after_s=wait,
            )
        if status == 413 or any(sign in lower for sign in _OVERFLOW_SIGNS):
            return RejectedError(f"status {status}: {message}", status=status, overflow=True)
        if "could not finish the message" in lower:
            message += "; raise `prompt: max_output_tokens` of the study"
        elif wanted := wanted_setting(detail, message, self._quirks):
            return EngineError(
                f"{where} refuses a parameter (status {status}: {message}); {wanted}, and run the "
                "same command again."
            )
        return RejectedError(f"status {status}: {message}", status=status)
