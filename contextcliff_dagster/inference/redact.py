"""Keep secrets out of every text that is shown or kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

_PATTERNS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\b(sk|pk|nvapi|hf|gsk|xai|AIza)[-_][A-Za-z0-9_-]{8,}"),
    re.compile(
        r"(?i)\b(api[-_]?key|access[-_]?token|token|secret|password)(=|%3D|\"?\s*:\s*\"?)[^\s&\"',;}]+"
    ),
    re.compile(r"(?<=://)[^/\s@]+@"),
)
HIDDEN = "[hidden]"


def redact(text: str, secrets: Iterable[str] = (), *, limit: int = 300) -> str:
    """``text`` on one line of at most ``limit`` characters, without secrets or what looks so."""
    for secret in sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


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
