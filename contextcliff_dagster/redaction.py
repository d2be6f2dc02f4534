"""Keep secrets out of every text that is shown or kept."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

_PATTERNS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\b(sk|pk|nvapi|hf|gsk|xai|AIza)[-_][A-Za-z0-9_-]{8,}"),
    re.compile(
        r"(?i)\b(api[-_]?key|access[-_]?token|token|secret|password)(=|%3D|\"?\s*:\s*\"?)[^\s&\"',;}]+"
    ),
    re.compile(r"(?<=://)[^/\s@]+@"),
)
HIDDEN = "[hidden]"
_SHORTEST = 4
"""Shorter ones say nothing, and would be found in every text."""


def redact(text: str, secrets: Iterable[str] = (), *, limit: int = 300) -> str:
    """``text`` on one line of at most ``limit`` characters, without secrets or what looks so."""
    text = hide(text, secrets)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets, as they are or as addresses, headers and JSON write them."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        # Each text in a text puts more backslashes before what it quotes.
        text = re.sub("".join(_ESCAPED.get(char, re.escape(char)) for char in form), HIDDEN, text)
    return text


_ESCAPED = {char: rf"\\*{re.escape(char)}" for char in "\"'/\\"}


def _forms(secret: str) -> set[str]:
    coded = base64.b64encode(secret.encode()).decode()
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        coded,
        coded.rstrip("="),
    }


def url_secrets(url: str) -> list[str]:
    """What of ``url`` may be shown to nobody: password, or a user that stands alone, both together
    as a header has them, and every value of the query."""
    found: list[str] = []
    with suppress(ValueError):
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        found = [password or user, f"{user}:{password}" if user else ""]
        found += [value for _, value in parse_qsl(parts.query)]
        if public_url(url) != url.rstrip("/"):
            found += [url, parts.query, parts.netloc.rpartition("@")[0]]
    return [secret for secret in found if secret]


def written_url(url: str) -> str:
    """``url`` as it may be shown, the names of environment variables in it kept as written."""
    url = re.sub(r"(?<=://)[^/\s@]+(?=@)", _named_only, url)
    return re.sub(r"(?<=[?&])[^&#\s]+", _named_only, url)


def _named_only(match: re.Match[str]) -> str:
    """A variable's name says nothing; anything else might be the secret itself."""
    name, equals, value = match[0].rpartition("=")
    kept = re.fullmatch(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\}|:)+", value)
    return match[0] if kept else f"{name}{equals}{HIDDEN}"


def public_url(url: str) -> str:
    """``url`` without user, password, query and fragment: what may be shown, kept and hashed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))
