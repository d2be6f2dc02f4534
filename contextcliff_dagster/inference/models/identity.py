"""The serving identity: what decides a model's answers, and where two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.inference.requests.recipe import stable_hash


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
