"""The endpoint to measure, from options or answers on a terminal, and its models.yaml entry."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from contextcliff_dagster.cli.ad_hoc_study import LOOKED_AT
from contextcliff_dagster.cli.display.output import some
from contextcliff_dagster.cli.errors import Interrupted, is_interruption, say, sentence
from contextcliff_dagster.cli.options import (
    MOST_TOKENS,
    Finite,
    count_option,
    gathered_as,
    together,
)
from contextcliff_dagster.contracts import ContextCliffError, CorpusError, EngineError, StudyError
from contextcliff_dagster.redaction import hide_keys, redact, written_url

if TYPE_CHECKING:
    from contextcliff_dagster.corpora.corpus import Entry
    from contextcliff_dagster.inference.engines.openai.local_servers import LocalServer
    from contextcliff_dagster.inference.execution.single_request import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry, NewEntry, Preset
    from contextcliff_dagster.studies import Study


T = TypeVar("T")


def can_ask() -> bool:
    """Return whether there is a terminal on which to ask questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(text: str, default: str | None = None) -> str:
    """Ask for a line; return it without surrounding blanks."""
    return str(click.prompt(text, default=default, err=True)).strip()


def ask_until(question: Callable[[], T]) -> T:
    """Ask until the answer is valid, showing each error."""
    while True:
        try:
            return question()
        except ContextCliffError as error:
            say(f"  {sentence(str(error))}")


def choose(
    text: str, choices: Sequence[str], on_address: Callable[[str], object] | None = None
) -> int:
    """Ask for one of the choices; return its index from 0. The first is the default.

    ``on_address`` receives a URL that is typed instead; None refuses it.
    """
    for number, choice in enumerate(choices, start=1):
        say(f"  {number}  {choice}")

    def number_of(typed: str) -> int:
        if on_address and typed.strip().startswith(("http://", "https://")):
            on_address(typed.strip())
            return len(choices)
        if not (typed.strip().isdecimal() and 1 <= int(typed) <= len(choices)):
            raise click.UsageError(f"type a number from 1 to {len(choices)}.")
        return int(typed)

    return int(click.prompt(text, value_proc=number_of, default="1", err=True)) - 1


@contextmanager
def nothing_written_on_interruption() -> Iterator[None]:
    """Make Ctrl-C say that no file was changed."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, click.Abort) or is_interruption(error):
            raise Interrupted("no file was changed") from error
        raise


def typed(*words: str) -> str:
    """Return the command line ``contextcliff WORDS`` as it works in this shell."""
    program = "contextcliff"
    if Path(sys.argv[0]).name == program and shutil.which(program) is None:
        program = sys.argv[0]
    return shlex.join([program, *words])


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def plain_address(url: str) -> str:
    """Return the base URL of ``url``: without a call's path, with ``/v1`` if there is no path.

    Raises:
        StudyError: it is not an address, or contains a password or a key.
    """
    from contextcliff_dagster.inference.models.entry import resolved

    url = url.strip()
    if url and "://" not in url and "${" not in url:
        url = f"http://{url}"
    url = url.rstrip("/")
    if written_url(url) != url:
        raise StudyError(
            "The address contains a password or a key, which would be written to a file: put that "
            "part in an environment variable and write ${VARIABLE} in its place."
        )
    if "${" in url:
        return url
    for call in ("/chat/completions", "/completions", "/models"):
        url = url.removesuffix(call)
    try:
        resolved("?", url)
    except EngineError:
        raise StudyError(
            f"{url or 'An empty text'} is not an address; write it as http://HOST:PORT/v1."
        ) from None
    return f"{url}/v1" if not urlsplit(url).path else url


def is_here(url: str) -> bool:
    """Return whether the address is on this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def asked_variable() -> str | None:
    """Ask for the variable that holds the key; None for no key."""
    name = ask("Environment variable that holds the key (- for none)", "-")
    if name == "-":
        return None
    check_variable(name, is_set=True)
    return name


def check_variable(name: str, *, is_set: bool) -> None:
    """Raise StudyError if ``name`` is not a variable's name, or, with ``is_set``, not set."""
    # The text is not repeated: it may be the key.
    if not _VARIABLE.fullmatch(name) or hide_keys(name) != name:
        raise StudyError(
            "The key itself is written nowhere: give the name of the environment variable that "
            "holds it, e.g. MY_KEY."
        )
    if is_set and not os.environ.get(name, "").strip():
        raise StudyError(
            f"The environment variable {name} for the key is not set; set it (export {name}=...) "
            "and run the command again, or leave out the calls (--no-call)."
        )


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The options for an endpoint; an option that was not given is None."""

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
        """Return whether any option selects an endpoint."""
        return (self.preset, self.base_url, self.model_id) != (None, None, None)


_OWN_OPTION = ("name", "engine", "base_url", "model_id", "api_key_env", "window_tokens")


def _keys(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """Parse pairs such as ``a.b=1`` to nested keys of models.yaml: ``{"a": {"b": 1}}``."""
    import yaml

    keys: dict[str, Any] = {}
    for pair in given:
        path, _, text = pair.partition("=")
        *above, last = path.split(".")
        inner = keys
        try:
            for name in above:
                inner = inner.setdefault(name, {})
            inner[last] = yaml.safe_load(text)
        except (yaml.YAMLError, TypeError, AttributeError):
            text = ""
        if not text or not all((*above, last)):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE, e.g. top_k=omit.", ctx, param)
    if taken := [name for name in keys if name in _OWN_OPTION]:
        raise click.BadParameter(f"{taken[0]} is decided by the other options.", ctx, param)
    return keys


set_option = click.option(
    "--set",
    "set_keys",
    multiple=True,
    callback=_keys,
    metavar="KEY=VALUE",
    help="Any other key of the model's entry (docs/models.md), e.g. reasoning_effort=low, "
    "quirks.top_k=omit or extra_body.top_n=3; repeatable.",
)

_OPTIONS = together(
    click.option(
        "--preset",
        metavar="NAME",
        help="Type of server: openai, anthropic, gemini, openrouter, nvidia, ollama, lmstudio, "
        "vllm, llamacpp, koboldcpp, nim.",
    ),
    click.option(
        "--base-url", metavar="URL", help="Any other OpenAI-compatible address, up to its /v1."
    ),
    click.option("--model-id", metavar="ID", help="Name of the model on the server."),
    click.option(
        "--api-key-env",
        metavar="VARIABLE",
        help="Environment variable with the API key; the key itself is never written to a file.",
    ),
    count_option(
        "--window-tokens", 1, MOST_TOKENS, "Context window, if the server does not report it."
    ),
    set_option,
    click.option("--no-call", is_flag=True, help="Do not check the model with one small call."),
    click.option(
        "--timeout",
        type=Finite(0, 3600, min_open=True),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of that check; a server may have to load the model first.",
    ),
)


endpoint_options = gathered_as("endpoint", EndpointOptions, _OPTIONS)
"""Decorator that passes an endpoint's options to a command as ``endpoint: EndpointOptions``."""


_SHOWN = 20


def chosen_endpoint(options: EndpointOptions, *, asking: bool) -> EndpointOptions:
    """Return the options with preset or address, and the key's variable, filled in.

    Raises:
        StudyError: neither is given and there is no terminal to ask on, or an option is invalid.
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
    """Return the new entry for the chosen model, and the findings of one call to it.

    Raises:
        StudyError: the name is taken or invalid.
        EngineError: the server cannot be reached, or refuses.
    """
    from contextcliff_dagster.inference.models.models_file import known_models, taken

    known = known_models()
    model_id = str(options.model_id)
    entry = known.get(name or "")
    if entry and (entry.model_id, entry.base_url) != (model_id, options.base_url):
        raise StudyError(taken(entry.name))
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
    """Return whether to ask for a key; a server on this machine shows whether it needs one."""
    if not is_here(url):
        return preset is None or preset.local_port is None
    port = urlsplit(url).port
    return not options.no_call and any(
        server.needs_key for server in asyncio.run(_found([port] if port else None))
    )


def _preset(options: EndpointOptions) -> Preset | None:
    from contextcliff_dagster.inference.models.models_file import PRESETS, get_preset

    if options.preset is not None:
        return get_preset(options.preset)
    host = urlsplit(options.base_url or "").hostname
    remote = [p for p in PRESETS.values() if p.local_port is None]
    return next((p for p in remote if urlsplit(p.base_url).hostname == host), None)


def _refused(options: EndpointOptions) -> EndpointOptions:
    from contextcliff_dagster.inference.models.models_file import PRESETS

    running = [f"{server.title} ({_option_for(server)})" for server in asyncio.run(_found())]
    more = f" Running on this machine: {', '.join(running)}." if running else ""
    raise StudyError(
        f"No endpoint is named: add --preset NAME ({', '.join(PRESETS)}) or --base-url URL.{more}"
    )


def _option_for(server: LocalServer) -> str:
    return f"--preset {server.preset}" if server.preset else f"--base-url {server.base_url}"


async def _found(ports: Sequence[int] | None = None) -> list[LocalServer]:
    from contextcliff_dagster.inference.engines.openai.local_servers import find_local_servers

    return await find_local_servers(ports)


def _asked_endpoint(options: EndpointOptions) -> EndpointOptions:
    from contextcliff_dagster.inference.models.models_file import PRESETS

    running = asyncio.run(_found())
    elsewhere = [preset for preset in PRESETS.values() if preset.local_port is None]
    lines = [_described(server) for server in running]
    lines += [f"{preset.title} ({preset.api_key_env})" for preset in elsewhere]
    lines.append("another OpenAI-compatible address")
    say("Which endpoint is to be measured?")
    given: list[str] = []
    number = choose("Endpoint, or its address", lines, given.append)
    if given:
        return replace(options, base_url=plain_address(given[0]))
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
    """Return the options with the model id filled in, chosen from the server's list.

    Raises:
        StudyError: no model is named, and there is no terminal to ask on.
        EngineError: the server cannot be reached, or refuses.
    """
    return replace(options, model_id=options.model_id or _listed_model(options, asking=asking))


def same_entry(options: EndpointOptions) -> ModelEntry | None:
    """Return the entry of models.yaml for this model at this address, if there is one."""
    from contextcliff_dagster.inference.models.models_file import NewEntry, known_models

    endpoint = (options.base_url, options.model_id, options.api_key_env)
    for entry in known_models().values():
        if (entry.base_url, entry.model_id, entry.api_key_env) == endpoint:
            fields = _with_keys(entry.model_dump(exclude_unset=True), options)
            same = NewEntry(entry.name, fields).checked() == entry
            return entry if same and options.window_tokens in (None, entry.window_tokens) else None
    return None


def _with_keys(fields: dict[str, Any], options: EndpointOptions) -> dict[str, Any]:
    """Return an entry's fields updated by `--set`, sections key by key."""
    changed = dict(fields)
    for key, value in options.set_keys.items():
        if isinstance(old := fields.get(key), dict) and isinstance(value, dict):
            value = {**old, **value}
        changed[key] = value
    return changed


def _listed_model(options: EndpointOptions, *, asking: bool) -> str:
    from contextcliff_dagster.inference.engines.openai.local_servers import listed_ids
    from contextcliff_dagster.inference.execution.single_request import listed_models

    ids: list[str] = []
    if not options.no_call:
        entry = entry_of(options, options.preset or "endpoint", "?").checked()
        ids = listed_ids(asyncio.run(in_words(listed_models(entry, options.timeout))))
    if len(ids) == 1:
        return ids[0]
    if not asking:
        listed = f"; the server lists {some(ids)}" if ids else ""
        raise StudyError(f"No model is named: add --model-id ID{listed}.")
    if 1 < len(ids) <= _SHOWN:
        say("Which model?")
        return ids[choose("Model", ids)]
    if ids:
        say(f"The server lists {some(ids)}.")
    return ask_until(lambda: _not_empty(ask("Model, as the server calls it")))


def _not_empty(text: str) -> str:
    if not text:
        raise StudyError("Write at least one character.")
    return text


def _free_name(model_id: str, preset: str | None, known: dict[str, ModelEntry]) -> str:
    """Return an unused name for the model: its id, limited to characters allowed in names."""
    plain = re.sub(r"[^A-Za-z0-9._/:@+-]+", "-", model_id).strip("-./:@+_")[:100] or "model"
    names = [plain, f"{plain}-{preset or 'server'}"]
    names += [f"{plain}-{number}" for number in range(2, len(known) + 3)]
    return next(name for name in names if name not in known)


def _asked_name(default: str | None, known: dict[str, ModelEntry]) -> str:
    from contextcliff_dagster.inference.models.models_file import NewEntry, taken

    name = ask("Name of the model in models.yaml", default)
    if name in known:
        raise StudyError(taken(name))
    NewEntry(name, {"engine": "openai", "base_url": "http://localhost/v1"}).checked()
    return name


def entry_of(options: EndpointOptions, name: str, model_id: str) -> NewEntry:
    """Return the entry for models.yaml, with the known properties of the server."""
    from contextcliff_dagster.inference.models.models_file import NewEntry

    preset = _preset(options)
    fields: dict[str, Any] = {"engine": "openai", "model_id": model_id}
    fields["base_url"] = options.base_url
    comments = {}
    if options.api_key_env:
        fields["api_key_env"] = options.api_key_env
        comments["api_key_env"] = "the variable's name; the key itself is in no file"
    if preset and preset.name == "openai" and (tokenizer := _openai_tokenizer(model_id)):
        fields["tokenizer"] = tokenizer
    if options.window_tokens:
        fields["window_tokens"] = options.window_tokens
    if preset and preset.concurrency:
        fields["concurrency"] = preset.concurrency
        comments["concurrency"] = "calls at a time; 1 keeps the times to the first token clean"
    if preset and preset.quirks:
        fields["quirks"] = dict(preset.quirks)
    hints = []
    if not options.window_tokens and (preset is None or preset.window != "server"):
        hints.append("window_tokens: 32768   # context window, where the server does not report it")
    if not is_here(options.base_url or ""):
        hints.append(
            "price: {input_usd_per_mtok: 1.0, output_usd_per_mtok: 4.0}   # for the cost estimate"
        )
    notes = [f"{preset.title}. {preset.note}".strip()] if preset else []
    return NewEntry(name, _with_keys(fields, options), comments, notes, hints)


def _openai_tokenizer(model_id: str) -> str | None:
    from tiktoken.model import encoding_name_for_model

    try:
        return f"tiktoken:{encoding_name_for_model(model_id)}"
    except KeyError:
        return None


_QUESTIONS = 3


def tried(entry: ModelEntry, within_s: float) -> Trial:
    """Make one small call to ``entry``; return the findings, and print them on stderr.

    Raises:
        EngineError: calls to it would fail.
    """
    from contextcliff_dagster.inference.execution.single_request import try_model

    say(f"One small call to {entry.name} ...")
    trial: Trial = asyncio.run(in_words(try_model(entry, within_s)))
    _say_what_was_found(trial)
    return trial


async def in_words(work: Any) -> Any:
    """Await ``work``; make errors name options, because models.yaml has no entry yet."""
    try:
        return await work
    except EngineError as error:
        text = str(error).replace("into `base_url` in models.yaml", "as --base-url")
        for key in ("base_url", "model_id", "api_key_env"):
            option = f"--{key.replace('_', '-')}"
            text = text.replace(f"`{key}` in models.yaml", option).replace(f"`{key}`", option)
        raise EngineError(text) from None


def with_findings(new: NewEntry, trial: Trial) -> NewEntry:
    """Return the entry with the quirks seen in the call, and the window the server reports."""
    fields, comments, hints = dict(new.fields), dict(new.comments), list(new.hints)
    quirks = trial.entry.quirks.model_dump(exclude_defaults=True)
    if quirks:
        fields["quirks"] = quirks
    if trial.loaded_window and "window_tokens" not in fields:
        fields["window_tokens"] = trial.loaded_window
        comments["window_tokens"] = "as the server reported it when this entry was written"
    if trial.window_tokens:
        hints = [hint for hint in hints if not hint.startswith("window_tokens")]
    return replace(new, fields=fields, comments=comments, hints=hints)


def ask_shortest(study: Study, entry: ModelEntry, within_s: float) -> list[dict[str, Any]]:
    """Ask one question on each of a new study's shortest documents, among its first ones.

    Returns the replies with their scores, and prints them on stderr; [] if the calls fail. The
    calls are not recorded in the ledger, so measuring asks these questions again.
    """
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.experiments.common.records import scoring_rules
    from contextcliff_dagster.inference.execution.single_request import ask_prompts
    from contextcliff_dagster.scoring.evaluate import score_rows

    corpus = open_corpus(study.corpus.kind, study.corpus_options)
    first: dict[str, Entry] = {}
    with suppress(CorpusError):  # the sentence comes with the sample
        for pair in islice(corpus.entries(), LOOKED_AT):
            first.setdefault(pair.document.document_id, pair)
    entries = sorted(first.values(), key=lambda pair: len(pair.document.text))[:_QUESTIONS]
    if not entries:
        return []
    recipe, rules = study.recipe(), scoring_rules(study, study.recipe())
    prompts = [recipe.render(pair.document.text, pair.example.question) for pair in entries]
    say(f"The study's questions on {len(prompts)} short documents, {len(prompts)} calls more ...")
    try:
        work = ask_prompts(entry, prompts, recipe.max_output_tokens, within_s)
        answers = asyncio.run(in_words(work))
    except EngineError as error:
        say(f"Note: no answers to them: {error}")
        return []
    examples = {pair.example.example_id: pair.example for pair in entries}
    texts = {pair.document.document_id: pair.document.text for pair in entries}
    rows = [
        {"example_id": name, "raw_output": answer.text}
        for name, answer in zip(examples, answers, strict=True)
    ]
    asked = []
    for row, example, scored in zip(
        rows, examples.values(), score_rows(rows, examples, texts.__getitem__, rules), strict=True
    ):
        question, reply = redact(example.question), redact(row["raw_output"])
        accepted, score = list(map(redact, example.answers)), scored["score"]
        say(f"  {question}")
        say(f"    reply: {reply or '(nothing)'}")
        say(f"    score {score:g}; accepted: {' | '.join(accepted)}")
        asked.append({"question": question, "accepted": accepted, "reply": reply, "score": score})
    if not any(answer["score"] for answer in asked):
        say("Note: none of them counts as right; compare replies and accepted answers first.")
    return asked


def _say_what_was_found(trial: Trial) -> None:
    from contextcliff_dagster.inference.execution.cost_estimate import unknown_window

    answer = trial.answer
    said = repr(redact(answer.text, limit=40)) if answer.text.strip() else "an empty text"
    window = f"; window {trial.window_tokens:,} tokens" if trial.window_tokens else ""
    say(f"{trial.entry.name} answered {said} in {answer.duration_ms / 1000:.1f} s{window}.")
    if not trial.window_tokens:
        say(unknown_window(trial.entry.name))
    if trial.entry.quirks.temperature == "omit":
        say("Note: it takes no temperature of 0, so its answers vary from run to run.")
