"""Errors that come before a server answers: each its sentence, with its cure."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import TransportError
from contextcliff_dagster.inference.engines.openai.http_client import Reply
from contextcliff_dagster.redaction import public_url
from contextcliff_dagster.web_guard.addresses import is_loopback

_OF_PROXIES = frozenset({403, 407, 500, 502, 503, 504})


def connection_error(
    error: Exception, model: str, endpoint: str, proxy: str | None
) -> Exception | None:
    """``error`` in words, None where it is of another kind. ``proxy``: that ``endpoint`` is asked
    through."""
    import aiohttp

    where = f"Model {model!r}: {endpoint}"
    if isinstance(error, aiohttp.InvalidURL):
        return EngineError(f"{where} is no address; correct `base_url` in models.yaml.")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return TransportError("connect", f"{endpoint} did not take the connection in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or "no reason is given"
        return EngineError(
            f"{where} has a certificate that is not trusted ({reason}); name a file with it, or "
            "with that of who signed it, by `ca_bundle` in models.yaml or by SSL_CERT_FILE."
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        why = f"the proxy {public_url(proxy or '')} answers with status {error.status}"
    elif isinstance(error, aiohttp.ClientConnectorSSLError):
        why = f"no TLS is spoken there ({error.os_error})"
    elif isinstance(error, aiohttp.ClientConnectorError):
        number = getattr(error.os_error, "errno", None) or 0
        why = os.strerror(number) if number > 0 else str(error)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            why = f"the proxy {public_url(proxy or '')}: {why}"
    else:
        return None
    return TransportError("connect", f"no connection to {endpoint}: {why}")


def is_of_proxy(reply: Reply, endpoint: str, proxy: str | None) -> bool:
    """Whether a proxy that cannot reach a server on this machine has replied in its place."""
    if proxy is None or not is_loopback(urlsplit(endpoint).hostname or ""):
        return False
    return reply.status in _OF_PROXIES and not reply.json()


def cure(endpoint: str, proxy: str | None) -> str:
    """What to do about a server that cannot be reached."""
    if proxy is None:
        return "start the server, or correct `base_url` in models.yaml"
    host = urlsplit(endpoint).hostname or ""
    if is_loopback(host):
        return f"it is on this machine and asked through a proxy: set NO_PROXY={host}"
    return f"correct HTTP_PROXY or HTTPS_PROXY, or name {host} in NO_PROXY where no proxy is needed"
