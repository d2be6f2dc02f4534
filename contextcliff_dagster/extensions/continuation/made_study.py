"""Studies built from the options of `continuation`, and the model behind `--api-url`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from contextcliff_dagster.cli.display.output import print_json, print_table
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import RunOptions, run_made_study
from contextcliff_dagster.cli.measuring.options import SectionOptions, digest, named_study
from contextcliff_dagster.cli.options import folder_option, gathered_as, path_option, together
from contextcliff_dagster.cli.setup.endpoint import EndpointOptions, set_option
from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.extensions.continuation.section import (
    BUILT_IN,
    LEFT_FOR_TEMPLATE,
    ContinuationSection,
    tokens_of,
)
from contextcliff_dagster.sampling.tokenizers.tokenizers import hub_file, is_repository
from contextcliff_dagster.store import Store, slug

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat.runs import RunName, Written
    from contextcliff_dagster.inference.execution.single_request import Served
    from contextcliff_dagster.inference.models.models_file import ModelEntry, NewEntry
    from contextcliff_dagster.studies import Study


KEY_VARIABLES = ("API_KEY", "API_PASSWORD", "OPENAI_API_KEY", "NVIDIA_API_KEY", "NVAPI_KEY")
"""Environment variables that may hold the API key, in order of lookup."""
_GIVEN_KEY = "CONTEXTCLIFF_API_PASSWORD"
_SECONDS = 60.0

_ENDPOINT_OPTIONS = together(
    click.option(
        "--api-url",
        metavar="URL",
        help="Measure the model of this OpenAI-compatible server, e.g. http://localhost:5001.",
    ),
    click.option(
        "--api-password",
        metavar="KEY",
        help=f"The server's key; never stored. Better: set {', '.join(KEY_VARIABLES)} (the first "
        "one set counts).",
    ),
    click.option(
        "--model-name", metavar="ID", help="The model's name on the server, if it has several."
    ),
    click.option(
        "--tokenizer-model",
        metavar="PATH|NAME",
        help="Tokenizer that counts windows: a tokenizer.json, its folder, or a Hugging Face "
        "repository (HF_TOKEN opens gated ones; default: the server, and tiktoken:o200k_base for a "
        "model without one).",
    ),
    click.option(
        "--embedding-model",
        metavar="ID",
        help="The server's embedding model, for the coherence of sentences (default: the small "
        "encoder of the extra `embeddings`, if installed).",
    ),
    set_option,
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server; None if not given."""

    api_url: str | None = None
    api_password: str | None = None
    model_name: str | None = None
    tokenizer_model: str | None = None
    embedding_model: str | None = None
    set_keys: Mapping[str, Any] = field(default_factory=dict)

    def embeddings(self, entry: ModelEntry) -> Mapping[str, Any]:
        """Return the `embeddings` key for a study that measures the server's model ``entry``."""
        if self.embedding_model is None:
            return {}
        server = {"base_url": entry.base_url, "model": self.embedding_model}
        key = {"api_key_env": entry.api_key_env} if entry.api_key_env else {}
        return {"embeddings": {**server, **key}}

    @property
    def tokenizer(self) -> str | None:
        """Return `tokenizer_model` in the notation of models.yaml; raise StudyError."""
        named = self.tokenizer_model
        if named is None or named.startswith(("tiktoken:", "file:", "server:", "hub:")):
            return named
        place = Path(named).expanduser().absolute()
        with suppress(OSError, ValueError):
            file = place / "tokenizer.json" if place.is_dir() else place
            if file.is_file():
                return f"file:{file}"
        if is_repository(named.partition("@")[0]) and not named.endswith(".json"):
            name = f"hub:{named}"
            hub_file(name)
            return name
        raise StudyError(
            f"--tokenizer-model {named} is neither a file nor a folder with a tokenizer.json; "
            "name one, or a repository of the Hugging Face hub."
        )


server_options = gathered_as("server", ServerOptions, _ENDPOINT_OPTIONS)
"""Decorator that passes the server's options to a command as ``server: ServerOptions``."""


DEFAULT_URL = "http://localhost:5001"  # of a local KoboldCpp, if `--compat` has no model


@contextmanager
def served_model(
    options: ServerOptions, max_context: int | None, keys: Mapping[str, Any] | None = None
) -> Iterator[tuple[ModelEntry, str | None]]:
    """Yield the stored models.yaml entry for the server's model, and its tokenizer.

    ``max_context`` (tokens) is needed if the server does not report its window. The tokenizer is
    the one specified, else the server's if it counts tokens, else None. An unknown kind of server
    is asked for a word, sampled by ``keys`` of the section, and a parameter that it refuses is
    omitted; without ``keys`` it is not asked.

    Raises:
        StudyError: the address is invalid, or the server reports no model or no window.
        EngineError: the server cannot be reached, or refuses the request.
    """
    from contextcliff_dagster.inference.models.models_file import kept_model

    with _key(options.api_password) as variable:
        new, served = _new_entry(options, variable, max_context)
        if keys is not None and not served.knows_sampling:
            new = _accepted(new, keys)
        with kept_model(new) as entry:
            yield entry, entry.tokenizer or (f"server:{entry.name}" if served.counts else None)


def _accepted(new: NewEntry, keys: Mapping[str, Any]) -> NewEntry:
    """Return the entry with the quirks that its server needs to accept the study's sampling.

    The store's entry with such a quirk, and the sampling of a known study, need no other call.
    """
    from contextcliff_dagster.inference.engines.base import Decoding
    from contextcliff_dagster.inference.execution.single_request import MOST_OUTPUT, try_model
    from contextcliff_dagster.inference.models.models_file import NewEntry, load_models
    from contextcliff_dagster.inference.requests.recipe import Sampling
    from contextcliff_dagster.studies import load_studies

    decide = {"temperature", "top_k", "top_p", "seed"}
    asked = {key: keys[key] for key in decide & keys.keys()}
    study = CONTINUATION_OPTIONS.study({"texts": ["text"], **asked}, models=[new.name])
    section, entry = study.sections["continuation"], load_models().get(new.name)
    sampled = [
        own.model_dump(include=decide)
        for known in load_studies().values()
        if new.name in known.models and (own := known.sections.get("continuation"))
    ]
    is_new = section.model_dump(include=decide) not in sampled
    if entry is None or (entry.quirks.top_k == "send" and is_new):
        sampling = Sampling(section.top_k, section.top_p, section.seed)
        trial = Decoding(MOST_OUTPUT, temperature=section.temperature[0], sampling=sampling)
        with _named_after_options():
            entry = asyncio.run(try_model(new.checked(), _SECONDS, trial)).entry
    quirks = entry.quirks.model_dump(exclude_defaults=True)
    return NewEntry(new.name, {**new.fields, "quirks": quirks}) if quirks else new


@contextmanager
def _key(given: str | None) -> Iterator[str | None]:
    """Yield the name of the variable holding the API key, a temporary one for `--api-password`."""
    if given is None:
        yield next((name for name in KEY_VARIABLES if os.environ.get(name, "").strip()), None)
        return
    # The message omits the key, because errors are shown and stored.
    if not re.fullmatch(r"[\x21-\x7e]+", given):
        raise StudyError(
            "--api-password is empty, or has characters not allowed in a header; give the key, or "
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


def _new_entry(
    options: ServerOptions, variable: str | None, max_context: int | None
) -> tuple[NewEntry, Served]:
    """Return the model entry, and what the server reports."""
    from contextcliff_dagster.cli.setup.endpoint import entry_of, plain_address
    from contextcliff_dagster.inference.models.models_file import NewEntry

    url = plain_address(str(options.api_url))
    endpoint = EndpointOptions(base_url=url, api_key_env=variable, set_keys=options.set_keys)
    name = options.model_name
    server = _ask_server(entry_of(endpoint, "server", name or "?").checked())
    if name is None:
        name = _only_model(server.model_ids)
        server = _ask_server(entry_of(endpoint, "server", name).checked())
    window = server.window_tokens
    if window is None and max_context is None:
        raise StudyError(
            f"The server at {options.api_url} does not report the window of {name}; add "
            "--max-context, its window in tokens."
        )
    stem = re.sub(r"[^A-Za-z0-9._/:@+-]+", "-", name).strip("-./:@+_")[:70] or "model"
    if options.set_keys:  # other request settings make another model
        settings = json.dumps(options.set_keys, sort_keys=True, default=str)
        stem += f"-{hashlib.sha256(settings.encode()).hexdigest()[:6]}"
    entry = entry_of(endpoint, f"{stem}@{urlsplit(url).netloc}"[:120], name)
    fields = {**entry.fields, **({"window_tokens": window} if window else {})}
    if options.tokenizer:
        fields["tokenizer"] = options.tokenizer
    return NewEntry(entry.name, fields), server


def _ask_server(entry: ModelEntry) -> Served:
    from contextcliff_dagster.inference.execution.single_request import ask_server

    with _named_after_options():
        return asyncio.run(ask_server(entry, _SECONDS))


@contextmanager
def _named_after_options() -> Iterator[None]:
    """Raise an error of the server again, with options in place of the keys of models.yaml."""
    try:
        yield
    except EngineError as error:
        text = re.sub(r"^Model 'server'", "--api-url", str(error))
        for key, option in (("base_url", "api-url"), ("model_id", "model-name")):
            text = text.replace(f"`{key}` in models.yaml", f"--{option}")
        raise EngineError(text) from None


def _only_model(ids: tuple[str, ...]) -> str:
    if len(ids) == 1:
        return ids[0]
    listing = f" it lists {', '.join(ids[:8])}{', ...' if len(ids) > 8 else ''};" if ids else ""
    what = "several models" if ids else "no model"
    raise StudyError(f"The server lists {what};{listing} give the one to measure as --model-name.")


_LATER = ("further_rounds", "compat", "word_list")
"""Keys that enter the digest only if they are used, so that older studies keep their names."""
CONTINUATION_OPTIONS = SectionOptions(
    "continuation",
    ContinuationSection,
    "contextcliff continuation",
    keys=(
        *("max_context", "start_context", "divisions", "rounds", "passages"),
        *("max_tokens", "temperature", "top_k", "top_p", "seed", "instruction"),
    ),
    names={"temperature": "--temp"},
    help={"max_context": "Largest size, as 16k (default: the model's window less 128, else 16k)."},
    texts=("instruction",),
)


def max_context(keys: Mapping[str, Any]) -> int | None:
    """Return `--max-context` in tokens, or None if not given; raise StudyError for other text."""
    try:
        return tokens_of(keys["max_context"]) if "max_context" in keys else None
    except ValueError as error:
        raise StudyError(f"--max-context: {error}; see `contextcliff continuation -h`.") from None


def without_refused(keys: Mapping[str, Any], server: ServerOptions, entry: ModelEntry) -> Any:
    """Return ``keys`` without top-k sampling if the trial call has shown that it is refused."""
    is_found = server.api_url is not None and "top_k" not in server.set_keys.get("quirks", {})
    if not is_found or entry.quirks.top_k == "send":
        return keys
    say("Note: the server refuses top_k, so tokens are drawn from all (top_k 0).")
    return {**keys, "top_k": 0}


def study_of_run(study: Study, run: RunName) -> Study:
    """Return the study of a `--compat` run, named after its id, text and model.

    Raise StudyError if a study with other options has the name.
    """
    from contextcliff_dagster.studies import known_study

    section = study.sections["continuation"]
    model = run.model.removeprefix("koboldcpp/")
    name = slug(f"{run.id}-{section.text_names[0]}-{model}")[:60].strip("-")
    known = known_study(name)
    if known is not None and (kept := known.sections.get("continuation")):
        # Rounds that the first run found to be needed are no other option.
        own = section.model_copy(update={"further_rounds": kept.further_rounds})
        study = study.changed(continuation=own.model_dump(mode="json"))
    return named_study(study, name, "--model-id", "study")


def made_study(
    texts: Sequence[Path],
    keys: Mapping[str, Any],
    entries: Sequence[ModelEntry],
    tokenizer: str | None = None,
    unreported: int | None = None,
    name: str | None = None,
) -> Study:
    """Return the study that the options describe; its name is derived from them.

    ``keys`` are keys of the section. The first of the models ``entries`` sets the largest window
    and the ``tokenizer`` if they are not given. A largest window that no model could be sent is
    lowered, with a note, unless a study with it exists already, also one called ``name``.
    ``unreported`` is the window of a server that does not report it.

    Raises:
        StudyError: a text does not exist, or an option has an invalid value.
    """
    from contextcliff_dagster.studies import known_study

    section: dict[str, Any] = {"texts": [text_file(text) for text in texts], **keys}
    # The largest context of a compat study leaves room for a template itself.
    reserve = 0 if keys.get("compat") else LEFT_FOR_TEMPLATE
    windows = [entry.window_tokens or unreported for entry in entries]
    if "max_context" not in section and windows[0]:
        section["max_context"] = max(windows[0] - reserve, 1)
    study = _named(section, texts, entries, tokenizer)
    asked = study.sections["continuation"].max_context
    known = [window for window in windows if window]
    most = max(known) - reserve if len(known) == len(windows) else asked
    if not asked > most > 0:
        return study
    kept = known_study(name or study.name)
    if kept is not None and kept.sections["continuation"].max_context == asked:
        return study  # its passages are measured; another size would move them all
    left = f", of which {reserve} are left for a chat template" if reserve else ""
    window = f"the window has {max(known):,}{left}"
    if most < (start := study.sections["continuation"].start_context):
        raise StudyError(
            f"The largest size, {most:,} tokens, is below the smallest, {start:,}: {window}. Lower "
            "--start-context."
        )
    say(f"Note: the largest size is {most:,} tokens, not {asked:,}: {window}.")
    return _named({**section, "max_context": most}, texts, entries, tokenizer)


def _named(
    section: Mapping[str, Any],
    texts: Sequence[Path],
    entries: Sequence[ModelEntry],
    tokenizer: str | None,
) -> Study:
    from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER

    tokenizer_used = tokenizer or entries[0].tokenizer or DEFAULT_TOKENIZER
    models = [entry.name for entry in entries]
    study = CONTINUATION_OPTIONS.study(
        section,
        description="Continuation: prose by context size.",
        tokenizer=tokenizer_used,
        models=models,
    )
    values = study.sections["continuation"].model_dump(mode="json")
    set_values = {key: value for key, value in values.items() if key not in _LATER or value}
    if set_values["embeddings"] == "auto":
        del set_values["embeddings"]  # keeps the names of studies older than this key
    suffix = digest([set_values, tokenizer_used, models])
    stem = re.sub(r"[^a-z0-9]+", "-", texts[0].stem.lower()).strip("-")[:30].strip("-") or "text"
    more = f"-and-{len(texts) - 1}" if len(texts) > 1 else ""
    return study.changed(name=f"continuation-{stem}{more}-{suffix}")


def text_file(text: Path) -> str:
    """Return the text's absolute path; raise StudyError if the file does not exist."""
    file = text.expanduser().absolute()
    with suppress(OSError, ValueError):
        if file.is_file():
            return str(file)
    raise StudyError(
        f"There is no text {text}; choose a file of prose (txt, md, html, pdf, docx, epub)."
    )


_OPTIONS = together(
    click.option(
        "--compat",
        type=click.Choice(["context-tester"]),
        help="Measure one passage as this tool does, and write its files to --results.",
    ),
    path_option(
        "--word-list",
        "FILE",
        "Familiar words, one per line, for the cloze score of --compat (default: a built-in list); "
        "with --reanalyze it replaces the list of the run.",
    ),
    folder_option("--results", "Parent of the folder that --compat writes (default: results)."),
)


@dataclass(frozen=True, slots=True)
class CompatOptions:
    """Options of `--compat`; None if not given."""

    compat: str | None = None
    word_list: Path | None = None
    results: Path | None = None

    def run_name(self, entry: ModelEntry, run_id: str | None, *, at_address: bool) -> RunName:
        """Return the name of the run of ``entry``; ``run_id`` defaults to the time.

        ``at_address``: whether the model is behind `--api-url`; it then has its server's name.
        """
        from contextcliff_dagster.extensions.continuation.compat.runs import RunName

        model = (entry.model_id if at_address else None) or entry.name
        return RunName(model, run_id or datetime.now().strftime("%Y%m%d-%H%M%S"))

    def check(self, *, reanalyze: bool) -> None:
        """Raise UsageError for an option that would have no effect."""
        if self.compat is None and self.results is not None:
            raise click.UsageError("--results goes with --compat; add that or leave out --results.")
        if self.compat is None and self.word_list is not None and not reanalyze:
            raise click.UsageError(
                "--word-list goes with --compat or --reanalyze; add one of them or leave it out."
            )

    def keys(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``keys`` with those that `--compat` adds; raise StudyError for a bad word list."""
        if self.compat is None:
            return dict(keys)
        compat_keys: dict[str, Any] = {"compat": self.compat, "word_list": BUILT_IN}
        if self.word_list is not None:
            from contextcliff_dagster.extensions.continuation.compat.metrics import read_word_list

            read_word_list(self.word_list)
            compat_keys["word_list"] = str(self.word_list.expanduser().absolute())
        return {**keys, **compat_keys}


compat_options = gathered_as("compat", CompatOptions, _OPTIONS)
"""Decorator that passes these options to a command as ``compat: CompatOptions``."""


def measure_compat(
    study: Study, entry: ModelEntry, results: Path, named: RunName, options: RunOptions
) -> None:
    """Measure ``study`` with retries and replacements, and write the run's folder.

    All answers are stored in the ledger, so repeating an interrupted command continues it. The
    folder is created in ``results`` and is named after ``named``.

    Raises:
        ContextCliffError: the folder exists already, or the study cannot be measured.
    """
    from contextcliff_dagster.cli.commands.report import print_profiled
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.continuation.compat.runs import (
        embedding_of,
        generations_of,
        metadata_of,
        new_folder,
        with_further_rounds,
        write_folder,
    )
    from contextcliff_dagster.extensions.continuation.documents import slices_of
    from contextcliff_dagster.extensions.continuation.experiment import CONTINUATION

    store = Store.default()
    folder = new_folder(results, study, named)
    _say_notes(study, repeated=slices_of(study).repeated)
    while True:
        study = with_further_rounds(study, store, CONTINUATION, options.campaign)
        measurement = run_made_study(study, options)
        if measurement is None:
            return
        options = replace(options, campaign=measurement.campaign)
        if with_further_rounds(study, store, CONTINUATION, measurement.campaign) == study:
            break
    with StudyRun.open(study, store, measurement.campaign) as run:
        generations = generations_of(run, CONTINUATION, entry.name)
    print_profiled(measurement, as_json=options.as_json)
    if generations.open_sizes:
        sizes = ", ".join(f"{size:,}" for size in generations.open_sizes)
        say(f"Rounds at {sizes} tokens have no answer yet; run the same command again.")
        return
    embedding = embedding_of(entry)
    say(
        f"Coherence is by {embedding.name}."
        if embedding.name
        else "No embedder is installed, so coherence is written as 0, as in Context-Tester."
    )
    metadata = metadata_of(study, entry, named, generations, embedding.name)
    written = write_folder(folder, study, metadata, generations, embedding.embed)
    if options.as_json:
        say(f"Result folder: {folder}")
        return
    print_written(written, as_json=False)


def print_written(written: Written, *, as_json: bool) -> None:
    """Print a run's averages and the files written for it."""
    from contextcliff_dagster.extensions.continuation.report.run_page import run_summary

    summary = run_summary(written.run)
    if as_json:
        print_json({**summary, "files": [str(path) for path in written.files]})
        return
    print_run(summary)
    for path in written.files:
        click.echo(path)


def _say_notes(study: Study, *, repeated: bool) -> None:
    if repeated:
        say(
            "Note: the text is too short for the largest window and is repeated, so the author's "
            "continuation may be in the context."
        )
    if study.sections["continuation"].word_list == BUILT_IN:
        say(
            "Note: the cloze score uses the built-in list of familiar words, not that of Dale and "
            "Chall; --word-list names another."
        )


def print_run(summary: Mapping[str, Any]) -> None:
    """Print a run's averages and author figures (`run_page.run_summary`) as a table."""
    click.echo(summary["name"])
    rows = [
        [f"{int(size):,}", *(_cell(figures.get(metric)) for metric in _SHOWN)]
        for size, figures in summary["averages"].items()
    ]
    author = [["author", *(_cell(summary["author"].get(metric)) for metric in _SHOWN)]]
    print_table(["context", *_SHOWN], [*rows, *(author if summary["author"] else [])])
    click.echo()


_SHOWN = (*("vocabulary_diversity", "cloze_score", "adjacent_coherence", "bigram_repetition_rate"),)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
