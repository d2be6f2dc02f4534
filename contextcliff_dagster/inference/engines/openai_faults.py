"""Faults of an OpenAI-compatible endpoint, sorted by what to do about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engine import RejectedError, TransportError
from contextcliff_dagster.inference.retry import retry_after_s

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

    def __init__(self, model: str, endpoint: str, redact: Callable[[str], str]) -> None:
        self._model, self._endpoint, self._redact = model, endpoint, redact

    def sort(self, fault: Exception, *, sent: bool) -> Exception:
        """``sent``: the response had begun, so the model may have worked."""
        import openai

        if isinstance(fault, (TransportError, RejectedError, EngineError)):
            return fault
        if isinstance(fault, openai.APITimeoutError):
            return self._timeout(fault)
        if isinstance(fault, openai.APIConnectionError):
            return self._connection(fault)
        if isinstance(fault, openai.APIStatusError):
            return self._status(fault)
        if isinstance(fault, json.JSONDecodeError):
            return TransportError(
                "broken_json", "the server's answer was broken JSON", maybe_paid=True
            )
        if isinstance(fault, openai.APIError):
            said = self._redact(str(fault.message))
            return TransportError(
                "stream_error", f"the server broke off with an error: {said}", maybe_paid=sent
            )
        name = type(fault).__name__
        if type(fault).__module__.split(".")[0] in {
            "httpx2",
            "httpcore2",
            "httpx",
            "httpcore",
            "h11",
            "anyio",
            "ssl",
        } or isinstance(fault, OSError):
            return TransportError(
                "drop", f"the connection broke while the answer came ({name})", maybe_paid=True
            )
        said = self._redact(str(fault))
        return TransportError(
            "bad_answer", f"the answer could not be read ({name}: {said})", maybe_paid=True
        )

    def unreachable(self, fault: TransportError) -> EngineError:
        """The sentence for a server that does not even say what it serves."""
        return EngineError(
            f"Model {self._model!r}: {self._endpoint} cannot be reached ({fault}); start the "
            "server, or correct `base_url` "
            "in models.yaml, and run the same command again."
        )

    def _timeout(self, fault: Exception) -> TransportError:
        cause = type(fault.__cause__).__name__
        if cause == "ConnectTimeout":
            return TransportError(
                "connect", f"{self._endpoint} did not take the connection in time"
            )
        if cause == "PoolTimeout":
            return TransportError("pool_timeout", "no free connection in time")
        return TransportError("timeout", "the server did not answer in time", maybe_paid=True)

    def _connection(self, fault: Exception) -> TransportError:
        cause = fault.__cause__
        name = type(cause).__name__
        if name in {"ConnectError", "UnsupportedProtocol", "ProxyError"}:
            return TransportError(
                "connect", self._redact(f"no connection to {self._endpoint}: {cause}")
            )
        return TransportError("drop", f"the connection broke ({name})", maybe_paid=True)

    def _status(self, fault: Any) -> Exception:
        status = int(fault.status_code)
        body = fault.body if isinstance(fault.body, dict) else {}
        code = str(body.get("code") or body.get("type") or "")
        said = self._redact(str(body.get("message") or _text(fault)))
        lower = f"{code} {said}".lower()
        where = f"Model {self._model!r} at {self._endpoint}"
        if status == 402 or "insufficient_quota" in lower:
            return EngineError(
                f"{where}: the account's quota is used up (status {status}: {said}); top it up "
                "and run the same command to go on."
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
            wait = retry_after_s(fault.response.headers)
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
        if setting := _wanted_setting(lower):
            return EngineError(
                f"{where} refuses a parameter (status {status}: {said}); set {setting} for it in "
                "models.yaml."
            )
        return RejectedError(f"status {status}: {said}", status=status)


def _text(fault: Any) -> str:
    try:
        return str(fault.response.text)
    except Exception:  # a streamed response that was never read has no text
        return str(fault)


def _wanted_setting(said: str) -> str | None:
    """The models.yaml setting that a refusal of a parameter asks for."""
    if not any(
        word in said
        for word in (
            "unsupported",
            "not support",
            "unrecognized",
            "not permitted",
            "extra",
            "unknown",
        )
    ):
        return None
    if "max_tokens" in said:
        return "`quirks: {max_tokens_parameter: max_completion_tokens}`"
    if "temperature" in said:
        return "`quirks: {temperature: omit}`"
    if "stream_options" in said:
        return "`quirks: {stream_usage: omit}`"
    if "continue_final_message" in said or "add_generation_prompt" in said:
        return "`quirks: {prefill: last_message}`"
    return None
