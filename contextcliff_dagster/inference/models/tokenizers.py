"""Tokenizers by name, including those of servers in models.yaml."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.models.entry import request_headers
from contextcliff_dagster.inference.models.models_file import ModelEntry, load_models, model_files

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def open_any_tokenizer(name: str) -> Tokenizer:
    """Open a tokenizer like `api.open_tokenizer`, or ``server:<model>`` from models.yaml.

    Raises:
        StudyError: the tokenizer is unknown, or the server cannot be asked.
        EngineError: the model has no usable address.
    """
    from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

    kind, _, model = name.partition(":")
    if kind != "server" or not model or model.startswith(("http://", "https://")):
        return open_tokenizer(name)
    entry = load_models().get(model)
    if entry is None:
        from contextcliff_dagster.sampling.tokenizers.tokenizers import no_such_tokenizer

        raise no_such_tokenizer(name, served_models())
    if not entry.spec.remote:
        hint = f"; its own is {entry.tokenizer!r}" if entry.tokenizer else ""
        raise StudyError(
            f"Tokenizer {name!r}: model {entry.name!r} has no running server "
            f"(engine {entry.engine!r}); give its tokenizer as file:<its tokenizer.json>{hint}."
        )
    from contextcliff_dagster.sampling.tokenizers.server import ServerTokenizer

    parts = urlsplit(entry.resolved_base_url())
    headers = request_headers(entry, f"Tokenizer {name!r}", StudyError)
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = base64.b64encode(user.encode()).decode()
        headers.setdefault("Authorization", f"Basic {credentials}")
    return ServerTokenizer(
        name,
        urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")),
        model=entry.model_id,
        headers=headers,
        query=parts.query,
        timeout_s=entry.timeout_s,
    )


def served_models() -> list[str]:
    """Return the models of models.yaml that have a server, which may count tokens."""
    return [name for name, entry in load_models().items() if entry.spec.remote]


def unlisted_server(name: str, home: Path | None) -> str | None:
    """Return the host and port of a tokenizer ``server:...`` that is not in models.yaml.

    For a study from elsewhere (``home``: the folder that it may read), the models.yaml of the
    working folder does not count, because it may have come with the study.
    """
    kind, _, url = name.partition(":")
    if kind != "server":
        return None
    models = load_models()
    listed = models if home is None else load_models(model_files(here=False))
    with suppress(EngineError, ValueError):  # no address: opening it says so
        if not url.startswith(("http://", "https://")):
            if (entry := models.get(url)) is None or not entry.spec.remote:
                return None
            url = entry.resolved_base_url()
        is_listed = _server(url) in set(_servers(listed.values()))
        return None if is_listed else urlsplit(url).netloc.rpartition("@")[2]
    return None


def _servers(entries: Iterable[ModelEntry]) -> Iterator[tuple[str, str | None, int | None]]:
    for entry in entries:
        with suppress(EngineError, ValueError):  # an address whose variable is not set
            if entry.spec.remote:
                yield _server(entry.resolved_base_url())


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port
