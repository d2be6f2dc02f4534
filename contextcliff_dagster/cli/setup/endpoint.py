"""Which endpoint is meant, by options or by questions, and its entry for models.yaml.

The options by which an endpoint is given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import (
    MOST_TOKENS,
    Finite,
    count_option,
    gathered_as,
    together,
)
from contextcliff_dagster.cli.setup.address_and_key import (
    asked_variable,
    check_variable,
    is_here,
    plain_address,
)
from contextcliff_dagster.cli.setup.questions import ask, ask_until, choose
from contextcliff_dagster.cli.setup.trial import in_words, tried, with_findings
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.inference.engines.openai.local_servers import LocalServer
    from contextcliff_dagster.inference.execution.trial_call import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.models.new_entry import NewEntry
    from contextcliff_dagster.inference.models.presets import Preset


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What the person gave; None: not given."""

    preset: str | None = None
    base_url: str | None = None
    model_id: str | None = None
    api_key_env: str | None = None
    window_tokens: int | None = None
    no_call: bool = False
    timeout: float = 60.0
    set_keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Whether any of it says which endpoint is meant."""
        return (self.preset, self.base_url, self.model_id) != (None, None, None)


_OWN_OPTION = ("name", "engine", "base_url", "model_id", "api_key_env", "window_tokens")


def _keys(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """``a.b=1`` and the like as an entry of models.yaml has them: ``{"a": {"b": 1}}``."""
    import yaml

    keys: dict[str, Any] = {}
    for one in given:
        path, _, text = one.partition("=")
        *above, last = path.split(".")
        inner = keys
        try:
            for name in above:
                inner = inner.setdefault(name, {})
            inner[last] = yaml.safe_load(text)
        except (yaml.YAMLError, TypeError, AttributeError):
            text = ""
        if not text or not all((*above, last)):
            raise click.BadParameter(f"{one!r} is no KEY=VALUE, as quirks.top_k=omit.", ctx, param)
    if taken := [name for name in keys if name in _OWN_OPTION]:
        raise click.BadParameter(f"{taken[0]} is decided by the other options.", ctx, param)
    return keys


set_option = click.option(
    "--set",
    "set_keys",
    multiple=True,
    callback=_keys,
    metavar="KEY=VALUE",
    help="Any other key of the model's entry (docs/models.md), as reasoning_effort=low, "
    "quirks.top_k=omit or extra_body.top_n=3; repeat it.",
)

_OPTIONS = together(
    click.option(
        "--preset",
        metavar="NAME",
        help="Kind of server: openai, anthropic, gemini, openrouter, nvidia, ollama, lmstudio, "
        "vllm, llamacpp, koboldcpp, nim.",
    ),
    click.option(
        "--base-url", metavar="URL", help="Any other OpenAI-compatible address, up to its /v1."
    ),
    click.option("--model-id", metavar="ID", help="The model as the server calls it."),
    click.option(
        "--api-key-env",
        metavar="VARIABLE",
        help="Environment variable that holds the key; the key itself is written nowhere.",
    ),
    count_option(
        "--window-tokens", 1, MOST_TOKENS, "Context window, where the server does not report it."
    ),
    set_option,
    click.option("--no-call", is_flag=True, help="Do not check the model with one small call."),
    click.option(
        "--timeout",
        type=Finite(0, 3600, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="How long that check may take; a server may have to load the model first.",
    ),
)


endpoint_options = gathered_as("endpoint", EndpointOptions, _OPTIONS)
"""Gives a command the options of an endpoint as one ``endpoint: EndpointOptions``."""


_SHOWN = 20


def chosen_endpoint(options: EndpointOptions, *, asking: bool) -> EndpointOptions:
    """The options with preset or address, and the variable of the key, filled in.

    Raises:
        StudyError: neither is given, and nobody can be asked; or one of them cannot be used.
    """
    if options.preset is None and options.base_url is None:
        options = _asked_endpoint(options) if asking else _refused(options)
    preset = _preset(options)
    url = plain_address(options.base_url or (preset.base_url if preset else ""))
    variable = options.api_key_env or (preset.api_key_env if preset else None)
    if asking and variable is None and _may_want_key(url, preset, options):
        variable = ask_until(asked_variable)
    if variable is not None:
        check_variable(variable, is_set=not options.no_call)
    name = preset.name if preset else None
    return replace(options, preset=name, base_url=url, api_key_env=variable)


def new_entry(
    options: EndpointOptions, name: str | None, *, asking: bool
) -> tuple[NewEntry, Trial | None]:
    """The entry for `chosen_model`, and what one call to it has shown.

    Raises:
        StudyError: the name is taken, or cannot be one.
        EngineError: the server cannot be asked, or refuses.
    """
    from contextcliff_dagster.inference.models.new_entry import known_models, taken

    known = known_models()
    model_id = str(options.model_id)
    there = known.get(name or "")
    if there and (there.model_id, there.base_url) != (model_id, options.base_url):
        raise StudyError(taken(there.name))
    if name is None:
        name = _free_name(model_id, options.preset, known)
        if asking:
            name = ask_until(lambda: _asked_name(name, known))
    new = entry_of(options, name, model_id)
    if options.no_call:
        new.checked()
        return new, None
    trial = tried(new.checked(), options.timeout)
    return with_findings(new, trial), trial


def _may_want_key(url: str, preset: Preset | None, options: EndpointOptions) -> bool:
    """Whether to ask for a key: a server of this machine shows whether it wants one."""
    if not is_here(url):
        return preset is None or preset.local_port is None
    port = urlsplit(url).port
    return not options.no_call and any(
        server.needs_key for server in asyncio.run(_found([port] if port else None))
    )


def _preset(options: EndpointOptions) -> Preset | None:
    from contextcliff_dagster.inference.models.presets import PRESETS, get_preset

    if options.preset is not None:
        return get_preset(options.preset)
    host = urlsplit(options.base_url or "").hostname
    known = [p for p in PRESETS.values() if p.local_port is None]
    return next((p for p in known if urlsplit(p.base_url).hostname == host), None)


def _refused(options: EndpointOptions) -> EndpointOptions:
    from contextcliff_dagster.inference.models.presets import PRESETS

    running = asyncio.run(_found())
    here = ", ".join(f"{server.title} ({_option_for(server)})" for server in running)
    more = f" Running on this machine: {here}." if here else ""
    raise StudyError(
        f"No endpoint is named: add --preset NAME ({', '.join(PRESETS)}) or --base-url URL.{more}"
    )


def _option_for(server: LocalServer) -> str:
    return f"--preset {server.preset}" if server.preset else f"--base-url {server.base_url}"


async def _found(ports: Sequence[int] | None = None) -> list[LocalServer]:
    from contextcliff_dagster.inference.engines.openai.local_servers import find_local_servers

    return await find_local_servers(ports)


def _asked_endpoint(options: EndpointOptions) -> EndpointOptions:
    from contextcliff_dagster.inference.models.presets import PRESETS

    running = asyncio.run(_found())
    elsewhere = [preset for preset in PRESETS.values() if preset.local_port is None]
    lines = [_described(server) for server in running]
    lines += [f"{preset.title} ({preset.api_key_env})" for preset in elsewhere]
    lines.append("another OpenAI-compatible address")
    say("Which endpoint is to be measured?")
    number = choose("Endpoint", lines)
    if number < len(running):
        server = running[number]
        return replace(options, preset=server.preset, base_url=server.base_url)
    if number < len(lines) - 1:
        return replace(options, preset=elsewhere[number - len(running)].name)
    url = ask_until(lambda: plain_address(ask("Its address, up to /v1")))
    return replace(options, base_url=url)


def _described(server: LocalServer) -> str:
    models = ", ".join(server.models[:3]) + (", ..." if len(server.models) > 3 else "")
    return f"{server.title} at {server.base_url}{f': {models}' if models else ''}"


def chosen_model(options: EndpointOptions, *, asking: bool) -> EndpointOptions:
    """The options with the model id filled in, chosen from the server's list.

    Raises:
        StudyError: none is named, and nobody can be asked.
        EngineError: the server cannot be asked, or refuses.
    """
    return replace(options, model_id=options.model_id or _listed_model(options, asking=asking))


def same_entry(options: EndpointOptions) -> ModelEntry | None:
    """The entry of models.yaml for this model at this address, if there is one."""
    from contextcliff_dagster.inference.models.new_entry import NewEntry, known_models

    given = (options.base_url, options.model_id, options.api_key_env)
    for entry in known_models().values():
        if (entry.base_url, entry.model_id, entry.api_key_env) == given:
            asked = _with_keys(entry.model_dump(exclude_unset=True), options)
            same = NewEntry(entry.name, asked).checked() == entry
            return entry if same and options.window_tokens in (None, entry.window_tokens) else None
    return None


def _with_keys(fields: dict[str, Any], options: EndpointOptions) -> dict[str, Any]:
    """The fields of an entry with those of `--set`; of a section the keys that it names."""
    changed = dict(fields)
    for key, value in options.set_keys.items():
        if isinstance(old := fields.get(key), dict) and isinstance(value, dict):
            value = {**old, **value}
        changed[key] = value
    return changed


def _listed_model(options: EndpointOptions, *, asking: bool) -> str:
    from contextcliff_dagster.inference.engines.openai.local_servers import listed_ids
    from contextcliff_dagster.inference.execution.trial_call import listed_models

    ids: list[str] = []
    if not options.no_call:
        entry = entry_of(options, options.preset or "endpoint", "?").checked()
        ids = listed_ids(asyncio.run(in_words(listed_models(entry, options.timeout))))
    if not asking:
        if len(ids) == 1:
            return ids[0]
        some = f"; the server lists {_some(ids)}" if ids else ""
        raise StudyError(f"No model is named: add --model-id ID{some}.")
    if len(ids) == 1:
        return ids[0]
    if 1 < len(ids) <= _SHOWN:
        say("Which model?")
        return ids[choose("Model", ids)]
    if ids:
        say(f"The server lists {_some(ids)}.")
    return ask_until(lambda: _not_empty(ask("Model, as the server calls it")))


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


def _not_empty(text: str) -> str:
    if not text:
        raise StudyError("Write at least one character.")
    return text


def _free_name(model_id: str, preset: str | None, known: dict[str, ModelEntry]) -> str:
    """A name for the model that none has: its id as far as names may hold its characters."""
    plain = re.sub(r"[^A-Za-z0-9._/:@+-]+", "-", model_id).strip("-./:@+_")[:100] or "model"
    names = [plain, f"{plain}-{preset or 'server'}"]
    names += [f"{plain}-{number}" for number in range(2, len(known) + 3)]
    return next(name for name in names if name not in known)


def _asked_name(default: str | None, known: dict[str, ModelEntry]) -> str:
    from contextcliff_dagster.inference.models.new_entry import NewEntry, taken

    name = ask("Name of the model in models.yaml", default)
    if name in known:
        raise StudyError(taken(name))
    NewEntry(name, {"engine": "openai", "base_url": "http://localhost/v1"}).checked()
    return name


def entry_of(options: EndpointOptions, name: str, model_id: str) -> NewEntry:
    """The entry for models.yaml, with what is known of a server at this address."""
    from contextcliff_dagster.inference.models.new_entry import NewEntry

    preset = _preset(options)
    given: dict[str, Any] = {"engine": "openai", "model_id": model_id}
    given["base_url"] = options.base_url
    comments = {}
    if options.api_key_env:
        given["api_key_env"] = options.api_key_env
        comments["api_key_env"] = "the variable's name; the key itself is in no file"
    if preset and preset.name == "openai" and (tokenizer := _openai_tokenizer(model_id)):
        given["tokenizer"] = tokenizer
    if options.window_tokens:
        given["window_tokens"] = options.window_tokens
    if preset and preset.concurrency:
        given["concurrency"] = preset.concurrency
        comments["concurrency"] = "calls at a time; 1 keeps the times to the first token clean"
    if preset and preset.quirks:
        given["quirks"] = dict(preset.quirks)
    hints = []
    if not options.window_tokens and (preset is None or preset.window != "server"):
        hints.append("window_tokens: 32768   # context window, where the server does not report it")
    if not is_here(options.base_url or ""):
        hints.append(
            "price: {input_usd_per_mtok: 1.0, output_usd_per_mtok: 4.0}   # for the cost estimate"
        )
    notes = [f"{preset.title}. {preset.note}".strip()] if preset else []
    return NewEntry(name, _with_keys(given, options), comments, notes, hints)


def _openai_tokenizer(model_id: str) -> str | None:
    from tiktoken.model import encoding_name_for_model

    try:
        return f"tiktoken:{encoding_name_for_model(model_id)}"
    except KeyError:
        return None
