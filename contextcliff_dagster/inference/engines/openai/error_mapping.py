"""Errors of an OpenAI-compatible endpoint, sorted by what to do about them.

Each error that occurs before a server answers has a sentence with advice.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import RejectedError, TransportError
from contextcliff_dagster.inference.engines.openai.http_client import (
    BAD_KEY,
    PASSES,
    OversizedError,
    Reply,
    StatusError,
    asked_wait_s,
    is_rate,
    is_used_up,
    known_refusal,
    too_much_at_once,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, Quirks
from contextcliff_dagster.redaction import public_url
from contextcliff_dagster.retry import retry_after_s

_OF_PROXIES = frozenset({403, 407, 500, 502, 503, 504})


def connection_error(
    error: Exception, model: str, endpoint: str, proxy: str | None
) -> Exception | None:
    """Return ``error`` in words, or None if it is of another kind. ``proxy``: the proxy before
    ``endpoint``, if any."""
    import aiohttp

    where = f"Model {model!r}: {endpoint}"
    if isinstance(error, aiohttp.InvalidURL):
        return EngineError(f"{where} is not an address; correct `base_url` in models.yaml.")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TransportError("connect", f"{endpoint} did not take the connection in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or "no reason given"
        return EngineError(
            f"{where} has an untrusted certificate ({reason}); set `ca_bundle` in models.yaml "
            "or SSL_CERT_FILE to a file with it or with its issuer's certificate."
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        why = f"the proxy {public_url(proxy or '')} answers with status {error.status}"
    elif isinstance(error, aiohttp.ClientConnectorSSLError):
        why = f"the server does not use TLS ({error.os_error})"
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = getattr(error.os_error, "errno", None) or 0
        why = os.strerror(number) if number > 0 else str(error)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            why = f"the proxy {public_url(proxy or '')}: {why}"
    else:
        return None
    return TransportError("connect", f"no connection to {endpoint}: {why}")


def is_of_proxy(reply: Reply, endpoint: str, proxy: str | None) -> bool:
    """Return whether the reply comes from a proxy that cannot reach this machine's server."""
    from contextcliff_dagster.web_guard import is_loopback  # loads starlette

    if proxy is None or not is_loopback(urlsplit(endpoint).hostname or ""):
        return False
    return reply.status in _OF_PROXIES and not reply.json()


def cure(endpoint: str, proxy: str | None) -> str:
    """Return advice on a server that cannot be reached."""
    if proxy is None:
        return "start the server, or correct `base_url` in models.yaml"
    from contextcliff_dagster.web_guard import is_loopback

    host = urlsplit(endpoint).hostname or ""
    if is_loopback(host):
        return f"the server is on this machine but behind a proxy: set NO_PROXY={host}"
    return f"correct HTTP_PROXY or HTTPS_PROXY, or name {host} in NO_PROXY where no proxy is needed"


_LONGEST_WAIT_S = 600.0
_OF_A_REQUEST = (400, 413, 422, "400", "413", "422")
_SCHEMA_SIGNS = ("response_format", "json_schema", "json schema", "guided", "grammar")
_MOST_OF_A_MESSAGE = 4_000
_REFUSED_FOR_ALL = {
    401: "the key is refused ({}); check the environment variable that `api_key_env` names.",
    403: "access is refused ({}); ask for access to this model, or use another key.",
    404: "there is no such model or address ({}); correct `model_id` or `base_url` in models.yaml.",
}
_NOTHING_THERE = (
    "nothing answers there ({}); correct `base_url` in models.yaml: it usually ends in /v1."
)
_KEY_WANTED = (
    "the server asks for a key ({}); set `api_key_env` in models.yaml to the environment "
    "variable that holds it."
)
_UNKNOWN = (
    r"unsupported|not support|isn't support|unrecogni[sz]ed|not permitted|not allowed|unknown"
    r"|unexpected|deprecated|extra (?:field|input|parameter)"
)
_REFUSED = rf"{_UNKNOWN}|invalid|must be|may only|can only|only the|only \S+ is|strictly|cannot"
_QUIRKS: Mapping[str, tuple[str, str, str]] = {
    "temperature": ("temperature", "omit", _REFUSED),
    "top_k": ("top_k", "omit", _REFUSED),
    "seed": ("seed", "omit", _UNKNOWN),
    "max_tokens": ("max_tokens_parameter", "max_completion_tokens", _UNKNOWN),
    "max_completion_tokens": ("max_tokens_parameter", "max_tokens", _UNKNOWN),
    "stream_options": ("stream_usage", "omit", _REFUSED),
    "continue_final_message": ("prefill", "last_message", _REFUSED),
    "add_generation_prompt": ("prefill", "last_message", _REFUSED),
}
"""Parameter -> quirk, the value that avoids the refusal, and the words that mark a refusal."""


class RefusedParameterError(EngineError):
    """The server refuses a parameter of every call; ``quirk`` (name, value) avoids it, if any."""

    def __init__(self, message: str, quirk: tuple[str, str] | None) -> None:
        super().__init__(message)
        self.quirk = quirk


class ErrorMapper:
    """Converter of the client's errors into TransportError, RejectedError or EngineError.

    ``redact`` is applied to the server's messages, because some echo the key.
    """

    def __init__(self, entry: ModelEntry, endpoint: str, redact: Callable[[str], str]) -> None:
        self._model, self._quirks = entry.name, entry.quirks
        self._has_key = bool(entry.api_key_env or entry.headers_env)
        self._endpoint, self.redact = endpoint, redact
        self.proxy: str | None = None
        # Once a call has been answered, a refusal concerns one request, not all.
        self.answered = False

    def sort(self, error: Exception, *, sent: bool = False, constrained: bool = False) -> Exception:
        """Return the mapped error. ``sent``: the response had begun, so the model may have worked;
        ``constrained``: the request had a JSON Schema for the reply."""
        import aiohttp

        if isinstance(error, (TransportError, RejectedError, EngineError)):
            return error
        if isinstance(error, StatusError):
            if is_of_proxy(error.reply, self._endpoint, self.proxy):
                return self.unreachable(TransportError("connect", str(error)))
            return self._status(error.reply, constrained)
        if unconnected := connection_error(error, self._model, self._endpoint, self.proxy):
            return unconnected
        name = type(error).__name__
        if isinstance(error, json.JSONDecodeError):
            kind, message = "broken_json", "the server's answer was broken JSON"
        elif isinstance(error, OversizedError):
            # A server that sends without end will do so again: do not pay for it twice.
            return TransportError("oversized", str(error), maybe_paid=True, again=False)
        elif isinstance(error, TimeoutError):
            kind, message = "timeout", "the server did not answer in time"
        elif isinstance(error, (aiohttp.ClientError, OSError)):
            when = "while the answer came" if sent else "before an answer came"
            kind, message = "drop", f"the connection broke {when} ({name})"
        else:
            reason = self.redact(str(error))
            kind, message = "bad_answer", f"the answer could not be read ({name}: {reason})"
        return TransportError(kind, message, maybe_paid=True)

    def in_stream(self, reported: Any, *, sent: bool = True) -> Exception:
        """Return the error that a server reports after it began to answer with status 200.

        ``sent``: part of the answer has arrived.
        """
        detail = reported if isinstance(reported, dict) else {"message": reported}
        message, lower = self._message(detail, _shown(detail))
        if is_used_up(lower):
            return self._quota(message)
        if why := known_refusal(lower):
            return RejectedError(message, why=why)
        if not sent and (detail.get("code") in _OF_A_REQUEST or not PASSES.search(lower)):
            return RejectedError(message)
        return TransportError(
            "stream_error", f"the server broke off with an error: {message}", maybe_paid=True
        )

    def _message(self, detail: Mapping[str, Any], default: str) -> tuple[str, str]:
        """Return the server's message, and the same in lower case preceded by its code and type."""
        message = _shown(detail.get("message") or default)
        more = detail.get("metadata")  # gateways hand on there what the provider said
        if isinstance(more, dict) and (raw := more.get("raw")):
            message = f"{message}: {_shown(raw)}"
        message = self.redact(message)
        code, kind = (_shown(detail.get(name) or "") for name in ("code", "type"))
        return message, f"{code} {kind} {message}".lower()

    def _quota(self, message: str) -> EngineError:
        return EngineError(
            f"Model {self._model!r} at {self._endpoint}: the account's quota is used up "
            f"({message}); top it up and run the same command again."
        )

    def unreachable(self, error: TransportError) -> EngineError:
        """Return the error for a server that does not even list its models."""
        return EngineError(
            f"Model {self._model!r}: {self._endpoint} cannot be reached ({error}); "
            f"{cure(self._endpoint, self.proxy)}, and run the same command again."
        )

    def _status(self, reply: Reply, constrained: bool) -> Exception:
        status, body = reply.status, reply.json()
        detail = body.get("error", body)
        if not isinstance(detail, dict):
            detail = {"message": detail}
        message, lower = self._message(
            detail, _shown(detail.get("detail") or reply.data.decode(errors="replace"))
        )
        where = f"Model {self._model!r} at {self._endpoint}"
        reason = f"{status}: {message}"
        described = f"status {reason}"
        if status in (400, 413, 429) and (limit := too_much_at_once(lower)):
            return RejectedError(
                f"{described} (this prompt exceeds the account's limit of {limit}: ask for a "
                "higher limit, or measure shorter documents)",
                status=status,
                why="quota",
            )
        if status == 402 or (status < 500 and is_used_up(lower)):
            return self._quota(described)
        if (why := known_refusal(lower)) == "content_filter" and 400 <= status < 500:
            return RejectedError(described, status=status, why=why)
        if 300 <= status < 400:
            target = self.redact(reply.headers.get("location", "nowhere"))
            return EngineError(
                f"{where} redirects to another address ({status}: {target}); correct "
                "`base_url` in models.yaml."
            )
        if status == 403 and self.answered:
            return RejectedError(described, status=status)
        if status == 404 and "model" not in lower:
            return EngineError(f"{where}: {_NOTHING_THERE.format(reason)}")
        if status == 503 and "loading" in lower:
            return TransportError("loading", described, status=status)
        if status == 400 and BAD_KEY.search(lower):
            status = 401
        if status == 401 and not self._has_key:
            return EngineError(f"{where}: {_KEY_WANTED.format(reason)}")
        if status in _REFUSED_FOR_ALL:
            return EngineError(f"{where}: {_REFUSED_FOR_ALL[status].format(reason)}")
        limited = status == 413 and is_rate(lower)
        if why and not limited and status != 429:
            return RejectedError(described, status=status, why=why)
        if limited or status in {408, 409, 425, 429} or status >= 500:
            wait_s = retry_after_s(reply.headers) or asked_wait_s(lower)
            if (wait_s or 0.0) > _LONGEST_WAIT_S:
                return EngineError(
                    f"{where} asks to wait {(wait_s or 0.0) / 60:.0f} minutes ({described}); then "
                    "run the same command again. Finished answers are kept."
                )
            return TransportError(
                f"http_{status}",
                described,
                # A gateway that gave up may hide a model that worked.
                maybe_paid=status in {502, 504},
                status=status,
                retry_after_s=wait_s,
            )
        if "could not finish the message" in lower:
            described += "; raise `prompt: max_output_tokens` of the study"
        elif constrained and _names_schema(detail, lower):
            return EngineError(
                f"{where} does not accept a JSON Schema ({described}); ask for free replies "
                "(`--replies free`, or `replies: free` in a study)."
            )
        elif not self.answered and (wanted := _wanted_setting(detail, message, self._quirks)):
            advice, quirk = wanted
            return RefusedParameterError(
                f"{where} refuses a parameter ({described}); {advice}, and run the same command "
                "again.",
                quirk,
            )
        return RejectedError(described, status=status)


def _shown(value: Any) -> str:
    """Return a server's value as a text of limited length that can be shown and stored."""
    try:
        text = value if isinstance(value, str) else str(value)
    except RecursionError:
        text = "nested too deeply to show"
    return text[:_MOST_OF_A_MESSAGE]


def _names_schema(error: Mapping[str, Any], message: str) -> bool:
    named = f"{_shown(error.get('param') or '')} {message}"
    return any(sign in named for sign in _SCHEMA_SIGNS)


def _wanted_setting(
    error: Mapping[str, Any], message: str, quirks: Quirks
) -> tuple[str, tuple[str, str] | None] | None:
    """Return a clause with the setting that avoids a refusal, and the quirk, if there is one.

    Returns None if the refusal is not about our parameters, or if the setting is already made.

    Reasoning models refuse a temperature of 0 and want another name for the output limit; older
    servers refuse new parameters. Every call would be refused alike, so the first refusal ends the
    run. OpenAI names the parameter in ``param``, FastAPI in ``loc``.
    """
    param = error.get("param")
    named = param if isinstance(param, str) and param else None
    details = error.get("detail")
    for detail in details if isinstance(details, list) and not named else []:
        where = detail.get("loc") if isinstance(detail, dict) else None
        if isinstance(where, list) and where and isinstance(last := where[-1], str):
            if last not in _QUIRKS:
                continue
            named = last
            break
    for parameter, (quirk, value, refusal) in _QUIRKS.items():
        if getattr(quirks, quirk) == value or named not in (None, parameter):
            continue
        if named is None:
            refused = _refuses(message, parameter, refusal)
        else:
            refused = refusal == _REFUSED or bool(re.search(refusal, message, re.IGNORECASE))
        if refused:
            return f"set `quirks: {{{quirk}: {value}}}` for it in models.yaml", (quirk, value)
    of_prompt = re.search(r"input|prompt|context|message|got -", message, re.IGNORECASE)
    if named in ("max_tokens", "max_completion_tokens") and not of_prompt:
        return "set `prompt: max_output_tokens` of the study to what the model allows", None
    return None


def _refuses(message: str, parameter: str, refusal: str) -> bool:
    # Errors may quote the prompt, so only words near the parameter's name count; they must be
    # nearer if the name is not in quotes.
    for name, near in ((f"['\"`]{parameter}['\"`]", 90), (rf"\b{parameter}\b", 30)):
        gap = rf"\W(?:.{{0,{near}}}\W)?"
        before = rf"{_UNKNOWN}|invalid" if refusal == _REFUSED else _UNKNOWN
        pattern = rf"{name}{gap}(?:{refusal})|(?:{before}){gap}{name}"
        if re.search(pattern, message, re.IGNORECASE | re.DOTALL):
            return True
    return False
