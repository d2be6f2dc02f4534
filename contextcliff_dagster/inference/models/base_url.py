"""The address of an endpoint as models.yaml writes it, its environment variables filled in."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import EngineError

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def resolved(model: str, written: str) -> str:
    """``written`` with its ``${VARIABLE}`` and ``${VARIABLE:-default}`` filled in.

    Raises:
        EngineError: a variable is not set and has no default, or the result is no address. The
            sentence does not repeat it: it may hold a password.
    """

    def fill(match: re.Match[str]) -> str:
        value = os.environ.get(match["name"]) or match["default"]
        if value is None:
            raise EngineError(
                f"Model {model!r} takes its address from the environment variable "
                f"{match['name']}, "
                "which is not set; set it, or write the address into models.yaml."
            )
        return value

    url = _VARIABLE.sub(fill, written).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise EngineError(
            f"Model {model!r}: `base_url` should begin with http:// or https://; correct "
            "models.yaml."
        )
    if not _names_a_host(url):
        raise EngineError(
            f"Model {model!r}: `base_url` names no host, or a port that there is not; correct "
            "models.yaml."
        )
    return url


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
