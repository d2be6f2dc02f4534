"""The serving identity, what decides a model's answers, and the address where it is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.requests.recipe import stable_hash

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


@dataclass(frozen=True)
class Identity:
    """The serving identity: what changes outputs. Prices, secrets and speed are not in it."""

    fields: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """SHA-256 of the fields; two identities are the same exactly where their hashes are."""
        return stable_hash(dict(self.fields))

    @property
    def window_tokens(self) -> int | None:
        """The window: the smallest of those that the entry, the weights and the server state."""
        names = "window_tokens declared_window_tokens server_max_model_len server_window_tokens"
        stated = [self.fields.get(name) for name in names.split()]
        if isinstance(meta := self.fields.get("server_meta"), Mapping):
            stated.append(meta.get("n_ctx"))
        return min((n for n in stated if type(n) is int and n > 0), default=None)

    def differences(self, other: Identity) -> list[str]:
        """``field: mine -> theirs`` for every field that differs."""
        return [
            f"{name}: {_short(mine)} -> {_short(theirs)}"
            for name, mine, theirs in differences(self.fields, other.fields)
        ]


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The fields that are not the same, by name, with both values (None where there is none).

    A field of a field is named with a dot, so that only what differs is listed.
    """
    a, b = _flat(mine), _flat(theirs)
    both = [(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys())]
    return [(name, one, other) for name, one, other in both if one != other]


def _flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 40 else text[:12] + "..." + text[-4:]
