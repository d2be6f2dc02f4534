"""An endpoint's address and the headers of its requests, environment variables filled in."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import EngineError, StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.inference.models.models_file import ModelEntry

SET_BY_RECIPE = frozenset(
    "model messages prompt stream stream_options temperature top_p top_k min_p seed n max_tokens "
    "max_completion_tokens response_format continue_final_message add_generation_prompt cache_salt "
    "cache_prompt reasoning_effort chat_template_kwargs".split()
)
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
                f"Model {model!r} takes its address from the environment variable {match['name']}, "
                "which is not set; set it, or write the address into models.yaml."
            )
        return value

    url = _VARIABLE.sub(fill, written).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise EngineError(
            f"Model {model!r}: `base_url` should begin with http:// or https://; correct "
            "models.yaml."
        )
    try:
        parts = urlsplit(url)
        names_a_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        names_a_host = False
    if not names_a_host:
        raise EngineError(
            f"Model {model!r}: `base_url` has no host, or no valid port; correct models.yaml."
        )
    return url


def request_headers(
    entry: ModelEntry, subject: str, refusal: type[EngineError | StudyError]
) -> dict[str, str]:
    """The headers that the entry names, their values from the environment; no other key is sent.

    Raises:
        EngineError, StudyError: as ``refusal`` says: a variable that ``subject`` takes is not set.
    """

    def secret(variable: str, what: str) -> str:
        if value := os.environ.get(variable, "").strip():
            return value
        raise refusal(
            f"{subject} takes {what} from the environment variable {variable}, which is not set; "
            "set it."
        )

    headers = {name: secret(var, f"header {name}") for name, var in entry.headers_env.items()}
    headers |= entry.extra_headers
    if entry.api_key_env:
        headers.setdefault("Authorization", f"Bearer {secret(entry.api_key_env, 'its key')}")
    return headers
