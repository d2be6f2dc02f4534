"""Nothing secret reaches a report: secret values are taken out before anything is drawn.

Results should carry no secret in the first place; this is the last door before a file that people
mail around. It removes what stands under a telling name, credentials inside URLs, tokens of a known
form, and any value that the environment holds under a telling name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"(api[_-]?key|secret|password|passwd|authorization|credentials?|private[_-]?key|access[_-]?key"
    r"|(access|auth|bearer|refresh|session|hub|hf)[_-]?token)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$")
_SECRET_TEXT = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}|\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bAKIA[A-Z0-9]{12,}"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}|(?<=://)[^/\s@]+(?=@)"
    r"|(?<=[?&])(?:api[_-]?key|key|token|access_token|sig|signature)=[^&\s]+"
)
_LEAST_LENGTH = 8


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the variables named like secrets (``..._KEY``, ``..._TOKEN``), longest first."""
    found = {
        v
        for k, v in environment.items()
        if _SECRET_VARIABLE.search(k.upper()) and len(v) >= _LEAST_LENGTH
    }
    return tuple(sorted(found, key=lambda v: (-len(v), v)))


def without_secrets(value: Any, secrets: tuple[str, ...] = ()) -> Any:
    """A copy of a JSON-like ``value`` in which every secret reads ``[redacted]``."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return _SECRET_TEXT.sub(REDACTED, value)
    if isinstance(value, Mapping):
        return {
            without_secrets(key, secrets): REDACTED
            if isinstance(key, str) and isinstance(item, str) and _SECRET_NAME.search(key)
            else without_secrets(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item, secrets) for item in value]
    return value
