"""The model of `--api-url`: what its server reports, as an entry that the store keeps."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from contextcliff_dagster.cli.options import gathered_as, together
from contextcliff_dagster.cli.setup.endpoint import EndpointOptions, set_option
from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.sampling.tokenizers.tokenizers import hub_file, is_repository

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.single_request import Served
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.models.new_entry import NewEntry

KEY_VARIABLES = ("API_KEY", "API_PASSWORD", "OPENAI_API_KEY", "NVIDIA_API_KEY", "NVAPI_KEY")
"""Of the key, in the order in which they are looked at."""
_GIVEN_KEY = "CONTEXTCLIFF_API_PASSWORD"
_SECONDS = 60.0

_OPTIONS = together(
    click.option(
        "--api-url",
        metavar="URL",
        help="Measure the model of this OpenAI-compatible server, as http://localhost:5001.",
    ),
    click.option(
        "--api-password",
        metavar="KEY",
        help=f"Its key; written nowhere. Better: {', '.join(KEY_VARIABLES)} (the first that is "
        "set).",
    ),
    click.option(
        "--model-name", metavar="ID", help="The model as the server calls it, where it has several."
    ),
    click.option(
        "--tokenizer-model",
        metavar="PATH|NAME",
        help="Counts windows: a tokenizer.json or its folder, or a repository of the Hugging Face "
        "hub, gated ones by HF_TOKEN (default: the server, else tiktoken:o200k_base).",
    ),
    click.option(
        "--embedding-model",
        metavar="ID",
        help="The server's model of embeddings, for the coherence of sentences (default: the small "
        "encoder of the extra `embeddings`, else none).",
    ),
    set_option,
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the person gave; None: not given."""

    api_url: str | None = None
    api_password: str | None = None
    model_name: str | None = None
    tokenizer_model: str | None = None
    embedding_model: str | None = None
    set_keys: Mapping[str, Any] = field(default_factory=dict)

    def embeddings(self, entry: ModelEntry) -> Mapping[str, Any]:
        """The key `embeddings` of a study that measures ``entry``, the server's model."""
        if self.embedding_model is None:
            return {}
        named = {"base_url": entry.base_url, "model": self.embedding_model}
        key = {"api_key_env": entry.api_key_env} if entry.api_key_env else {}
        return {"embeddings": {**named, **key}}

    @property
    def tokenizer(self) -> str | None:
        """`tokenizer_model` as models.yaml names a tokenizer.

        Raises:
            StudyError: it is neither a file, nor a folder with one, nor a tokenizer of ours, nor
                a repository that the hub gives.
        """
        given = self.tokenizer_model
        if given is None or given.startswith(("tiktoken:", "file:", "server:", "hub:")):
            return given
        place = Path(given).expanduser().absolute()
        try:
            file = place / "tokenizer.json" if place.is_dir() else place
            if file.is_file():
                return f"file:{file}"
        except (OSError, ValueError):
            pass
        if is_repository(given.partition("@")[0]) and not given.endswith(".json"):
            name = f"hub:{given}"
            hub_file(name)
            return name
        raise StudyError(
            f"--tokenizer-model {given}: there is no such file, and no folder with a "
            "tokenizer.json; name one, or a repository of the Hugging Face hub."
        )


server_options = gathered_as("server", ServerOptions, _OPTIONS)
"""Gives a command the options of the server as one ``server: ServerOptions``."""


@contextmanager
def served_model(
    options: ServerOptions, max_context: int | None
) -> Iterator[tuple[ModelEntry, str | None]]:
    """The entry of the server's model, kept by the store while a study names it, and its tokenizer.

    ``max_context`` (tokens) is needed where the server does not report its window. The tokenizer
    is the one that is named, else the server's where it counts; None for neither.

    Raises:
        StudyError: the address is none, or the server reports neither its model nor its window.
        EngineError: the server cannot be asked, or refuses.
    """
    from contextcliff_dagster.inference.models.models_file import kept_model

    with _key(options.api_password) as variable:
        new, counts = _entry(options, variable, max_context)
        with kept_model(new) as entry:
            yield entry, entry.tokenizer or (f"server:{entry.name}" if counts else None)


@contextmanager
def _key(given: str | None) -> Iterator[str | None]:
    """The variable that holds the key; one of this process alone for `--api-password`."""
    if given is None:
        yield next((name for name in KEY_VARIABLES if os.environ.get(name, "").strip()), None)
        return
    # The key is not repeated: errors are shown and kept.
    if not re.fullmatch(r"[\x21-\x7e]+", given):
        raise StudyError(
            "--api-password is empty, or has characters that no header can carry; give the key, or "
            f"set {KEY_VARIABLES[0]}."
        )
    before = os.environ.get(_GIVEN_KEY)
    os.environ[_GIVEN_KEY] = given
    try:
        yield _GIVEN_KEY
    finally:
        if before is None:
            del os.environ[_GIVEN_KEY]
        else:
            os.environ[_GIVEN_KEY] = before


def _entry(
    options: ServerOptions, variable: str | None, max_context: int | None
) -> tuple[NewEntry, bool]:
    """The entry, and whether the server counts tokens."""
    from contextcliff_dagster.cli.setup.endpoint import entry_of, plain_address
    from contextcliff_dagster.inference.models.new_entry import NewEntry

    url = plain_address(str(options.api_url))
    given = EndpointOptions(base_url=url, api_key_env=variable, set_keys=options.set_keys)
    name = options.model_name
    served = _asked(entry_of(given, "server", name or "?").checked())
    if name is None:
        name = _only(served.model_ids)
        served = _asked(entry_of(given, "server", name).checked())
    window = served.window_tokens
    if window is None and max_context is None:
        raise StudyError(
            f"The server at {options.api_url} does not report the window of {name}; add "
            "--max-context, its window in tokens."
        )
    if window is not None and max_context is not None and max_context > window:
        raise StudyError(
            f"--max-context is {max_context:,}, and the server's window has {window:,} tokens; "
            "lower --max-context, or start the server with a larger window."
        )
    plain = re.sub(r"[^A-Za-z0-9._/:@+-]+", "-", name).strip("-./:@+_")[:70] or "model"
    if options.set_keys:  # asked otherwise it is another model
        written = json.dumps(options.set_keys, sort_keys=True, default=str)
        plain += f"-{hashlib.sha256(written.encode()).hexdigest()[:6]}"
    own = entry_of(given, f"{plain}@{urlsplit(url).netloc}"[:120], name)
    fields = {**own.fields, **({"window_tokens": window} if window else {})}
    if options.tokenizer:
        fields["tokenizer"] = options.tokenizer
    return NewEntry(own.name, fields), served.counts


def _asked(entry: ModelEntry) -> Served:
    from contextcliff_dagster.inference.execution.single_request import ask_server

    try:
        return asyncio.run(ask_server(entry, _SECONDS))
    except EngineError as error:
        text = re.sub(r"^Model 'server'", "--api-url", str(error))
        for key, option in (("base_url", "api-url"), ("model_id", "model-name")):
            text = text.replace(f"`{key}` in models.yaml", f"--{option}")
        raise EngineError(text) from None


def _only(ids: tuple[str, ...]) -> str:
    if len(ids) == 1:
        return ids[0]
    shown = f" it lists {', '.join(ids[:8])}{', ...' if len(ids) > 8 else ''};" if ids else ""
    what = "several models" if ids else "no model"
    raise StudyError(f"The server lists {what};{shown} add --model-name, the one to measure.")
