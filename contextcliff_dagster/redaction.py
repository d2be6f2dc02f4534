"""Keep secrets out of every text that is shown or stored: errors, logs, reports.

Secrets are hidden by value if they are known (`hide`), else by pattern: keys of the providers and
hosts in ``_KEYS``, values after a telling name ("api-key: ...", "?token=..."), and credentials in
addresses and headers. Keys without a distinctive pattern (Azure, Cohere, Mistral, Weights & Biases:
plain hexadecimal or letters, like hashes) are recognised only by such a name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

HIDDEN = "[hidden]"
_SHORTEST = 4
"""Minimum length of a secret to hide; shorter strings would occur in every text."""
_SHORTEST_IN_ENVIRONMENT = 8

_KEYS = (
    r"[spr]k-(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter
    r"[spr]k-(?=[A-Za-z0-9]*[0-9])[A-Za-z0-9]{12,}[A-Za-z0-9_-]*",  # OpenAI, DeepSeek, Qwen
    r"[spr]k-[A-Za-z0-9]{20,}[A-Za-z0-9_-]*",
    r"[spr]k_(?:live|test)_[A-Za-z0-9]{8,}",
    r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_+=-])",  # Google
    r"(?:AQ\.|ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{12,16}(?![A-Za-z0-9+=])",  # AWS
    r"ABSK[A-Za-z0-9+/]{60,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{16,}",
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}",
    r"(?:hf|gsk|r8|fw|jina|rpa|npm|pcsk)_[A-Za-z0-9]{16,}[A-Za-z0-9_]*",  # Hugging Face, Groq, ...
    r"(?:xai|pplx|csk|tvly)-[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",  # xAI, Perplexity, Cerebras, Tavily
    r"(?:nvapi-|tgp_v1_|wandb_v1_)[A-Za-z0-9_-]{16,}",  # NVIDIA, Together, Weights & Biases
    r"dapi[0-9a-f]{32}(?:-[0-9]+)?|lsv2_(?:pt|sk)_[0-9a-f_]{16,}",  # Databricks, LangSmith
    r"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON Web Tokens
)
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
"""Position where a key may begin: not within a word, but possibly after an escape sequence."""

_NAME = (
    r"api[-_ ]?key|(?:access|private|subscription|account)[-_ ]?key|client[-_ ]?secret|password"
    r"|passwd|passphrase|authorization|(?:access|auth|bearer|refresh|session|hub|hf)[-_ ]?token"
)
_BEHIND = r"\\*[\"']?\s*(?:=|:|%3D)\s*\\*[\"']?"
_VALUE = r"(?:(?:bearer|basic|token|key)(?:\s|\+|%20)+)?[^\s&\"',;}]+"
_LIKE_A_KEY = r"(?=[^\s&,;}]{16}|(?=[^\s&,;}]*[0-9])(?=[^\s&,;}]*[A-Za-z])[^\s&,;}]{8})"
_WHOLE = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]+-----|\Z)",
    rf"{_START}(?:{'|'.join(_KEYS)})",
    r"(?<=://)[^/\s@]+(?=@)",
)
_AFTER_A_NAME = (
    rf"(?i)((?:{_NAME}){_BEHIND}){_VALUE}",
    r"(?i)([?&](?:key|sig|signature|auth|code)(?:=|%3D))[^&\s\"']+",
    # These also occur in prose: after a colon, hide only what is quoted or looks like a key.
    r"(?i)((?:(?<![A-Za-z0-9_])token|(?-i:_TOKEN)|secret|credentials?)"
    rf"(?:\\*[\"']?\s*(?:=|%3D)\s*\\*[\"']?|\\*[\"']?\s*:\s*(?:\\*[\"']|{_LIKE_A_KEY}))){_VALUE}",
    r"\b((?i:bearer)(?:\s|\+|%20)+)"
    r"(?=[^\s\"',;]*(?:[0-9_]|[a-z][A-Z])|[^\s\"',;]{20})[A-Za-z0-9._~+/=-]{6,}",
)
_PATTERNS = (
    *((re.compile(pattern, re.S), HIDDEN) for pattern in _WHOLE),
    *((re.compile(pattern), rf"\1{HIDDEN}") for pattern in _AFTER_A_NAME),
)
_BASIC = re.compile(r"\b((?i:basic)(?:\s|\+|%20)+)([A-Za-z0-9+/]{4,}={0,2})")
_SECRET_NAME = re.compile(rf"(?:{_NAME}|secret|credentials?)$", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$")


def redact(text: str, secrets: Iterable[str] = (), *, limit: int = 300) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, without secrets."""
    text = " ".join(hide_keys(hide(text, secrets)).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def hide_keys(text: str) -> str:
    """Return ``text`` with everything hidden that looks like a secret."""
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return _BASIC.sub(_without_basic, text)


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with ``secrets`` hidden, also as encoded in URLs, headers and JSON."""
    pattern = _pattern_of(tuple(secrets))
    return pattern.sub(HIDDEN, text) if pattern else text


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with a secret's name (``..._KEY``, ``..._TOKEN``)."""
    secret = {v for name, v in environment.items() if _SECRET_VARIABLE.search(name.upper())}
    return tuple(sorted(v for v in secret if len(v) >= _SHORTEST_IN_ENVIRONMENT))


def without_secrets(value: Any, secrets: tuple[str, ...] = ()) -> Any:
    """Return a copy of a JSON-like ``value`` with every secret replaced by ``[hidden]``.

    A text under a secret's key ("api_key", "password") is always hidden.
    """
    if isinstance(value, str):
        return hide_keys(hide(value, secrets))
    if isinstance(value, Mapping):
        return {
            without_secrets(key, secrets): HIDDEN
            if isinstance(key, str) and isinstance(item, str) and _SECRET_NAME.search(key)
            else without_secrets(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, secrets) for item in value]
    return value


_ESCAPED = {char: rf"\\*{re.escape(char)}" for char in "\"'/\\"}


@lru_cache(16)
def _pattern_of(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            coded = base64.b64encode(secret.encode()).decode()
            forms |= {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}
            forms |= {json.dumps(secret)[1:-1], coded, coded.rstrip("=")}
    # Each level of nested quoting adds more backslashes.
    escaped = [
        "".join(_ESCAPED.get(char, re.escape(char)) for char in form)
        for form in sorted(forms, key=lambda form: (-len(form), form))
    ]
    return re.compile("|".join(escaped)) if escaped else None


def _without_basic(match: re.Match[str]) -> str:
    """Hide base64-coded credentials, which decode to text with a colon, unlike ordinary words."""
    coded = match[2].rstrip("=")
    pair = base64.b64decode(coded[: len(coded) // 4 * 4])
    return f"{match[1]}{HIDDEN}" if b":" in pair else match[0]


def url_secrets(url: str) -> list[str]:
    """Return the secret parts of ``url``: its password (or its user if it has none),
    ``user:password`` as in a header, and every value of its query.
    """
    secrets: list[str] = []
    with suppress(ValueError):
        parts = urlsplit(url)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        secrets = [password or user, f"{user}:{password}" if user else ""]
        secrets += [value for _, value in parse_qsl(parts.query)]
        if public_url(url) != url.rstrip("/"):
            secrets += [url, parts.query, parts.netloc.rpartition("@")[0]]
    return [secret for secret in secrets if secret]


def written_url(url: str) -> str:
    """Return ``url`` without secrets, keeping the names of environment variables in it."""
    url = re.sub(r"(?<=://)[^/\s@]+(?=@)", _named_only, url)
    return re.sub(r"(?<=[?&])[^&#\s]+", _named_only, url)


def _named_only(match: re.Match[str]) -> str:
    """Keep names of variables; hide anything else, because it may be the secret itself."""
    name, equals, value = match[0].rpartition("=")
    only_variables = re.fullmatch(r"(\$\{[A-Za-z_][A-Za-z0-9_]*\}|:)+", value)
    return match[0] if only_variables else f"{name}{equals}{HIDDEN}"


_DATABASE_URL = re.compile(
    r"postgres(?:ql)?://(?:(?P<user>[^@:/?#\s]*)(?::(?P<password>[^@/?#\s]*))?@)?"
    r"(?P<place>(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])?(?::\d+)?(?:/[^@/?#\s]*)?)(?:\?(?P<query>[^@#\s]*))?"
)


class DatabaseUrl:
    """URL of a PostgreSQL database, shown without its password.

    ``secret`` is the whole URL, for the database driver only; ``secrets`` holds the password as
    written and decoded, which must not be shown.

    Raises:
        StoreError: the URL is invalid. The message omits it, because it may hold a password.
    """

    __slots__ = ("_shown", "secret", "secrets")

    def __init__(self, url: str) -> None:
        # Stricter than libpq: if a password with an unescaped @, / or # were misread, part of it
        # would appear as a host or port in error messages.
        parts = _DATABASE_URL.fullmatch(url)
        if parts is None:
            from contextcliff_dagster.contracts import StoreError

            raise StoreError(
                "CONTEXTCLIFF_LEDGER is not a URL of a PostgreSQL database; write it as "
                "postgresql://USER:PASSWORD@HOST:5432/DATABASE, with any @, :, /, ?, # or % of the "
                "password percent-encoded, or leave the password to ~/.pgpass."
            )
        in_query = dict(parse_qsl(parts["query"] or "")).get("password")
        written = [word for word in (parts["password"], in_query) if word]
        self.secret, self.secrets = url, [*written, *map(unquote, written)]
        user = f"{parts['user']}@" if parts["user"] else ""
        self._shown = f"postgresql://{user}{parts['place']}"

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"DatabaseUrl({self._shown!r})"


def public_url(url: str) -> str:
    """Return ``url`` without user, password, query and fragment, safe to show, store and hash."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))
