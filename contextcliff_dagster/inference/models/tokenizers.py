"""Tokenizers by name, those of the servers in models.yaml among them."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.models.base_url import request_headers
from contextcliff_dagster.inference.models.models_file import load_models

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def open_any_tokenizer(name: str) -> Tokenizer:
    """As `api.open_tokenizer`, and ``server:<model>`` for a model of models.yaml.

    Raises:
        StudyError: there is no such tokenizer, or the server cannot be asked.
        EngineError: the model has no usable address.
    """
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    kind, _, model = name.partition(":")
    if kind != "server" or not model or model.startswith(("http://", "https://")):
        return open_tokenizer(name)
    entry = load_models().get(model)
    if entry is None:
        from contextcliff_dagster.sampling.tokenizers.catalogue import no_such_tokenizer

        raise no_such_tokenizer(name, served_models())
    if not entry.spec.remote:
        own = f"; its own is {entry.tokenizer!r}" if entry.tokenizer else ""
        raise StudyError(
            f"Tokenizer {name!r}: model {entry.name!r} has no server that is running already "
            f"(engine {entry.engine!r}); name its tokenizer as file:<its tokenizer.json>{own}."
        )
    from contextcliff_dagster.sampling.tokenizers.server import ServerTokenizer

    parts = urlsplit(entry.resolved_base_url())
    headers = request_headers(entry, f"Tokenizer {name!r}", StudyError)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        coded = base64.b64encode(user.encode()).decode()
        headers.setdefault("Authorization", f"Basic {coded}")
    return ServerTokenizer(
        name,
        urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
        model=entry.model_id,
        headers=headers,
        query=parts.query,
        timeout_s=entry.timeout_s,
    )


def served_models() -> list[str]:
    """Models of models.yaml that are reached at an address, which may count tokens."""
    return [name for name, entry in load_models().items() if entry.spec.remote]


def unlisted_server(name: str) -> str | None:
    """Host and port of the tokenizer ``server:<URL>`` where models.yaml has no server there."""
    kind, _, url = name.partition(":")
    if kind != "server" or not url.startswith(("http://", "https://")):
        return None
    listed = set()
    for entry in load_models().values():
        with suppress(EngineError, ValueError):  # an address whose variable is not set
            if entry.spec.remote:
                listed.add(_server(entry.resolved_base_url()))
    with suppress(ValueError):
        return None if _server(url) in listed else urlsplit(url).netloc.rpartition("@")[2]
    return None  # no address: opening it says so


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port
