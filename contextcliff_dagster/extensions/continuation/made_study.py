"""Studies made on the spot of the options of `continuation`, and the model of `--api-url`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from contextcliff_dagster.cli.display.output import print_table
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import RunOptions, run_made_study
from contextcliff_dagster.cli.measuring.options import SectionOptions, digest
from contextcliff_dagster.cli.options import (
    folder_option,
    gathered_as,
    path_option,
    together,
)
from contextcliff_dagster.cli.setup.endpoint import EndpointOptions, set_option
from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.extensions.continuation.section import ContinuationSection, tokens_of
from contextcliff_dagster.sampling.tokenizers.tokenizers import hub_file, is_repository
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat.runs import RunName
    from contextcliff_dagster.inference.execution.single_request import Served
    from contextcliff_dagster.inference.models.models_file import ModelEntry, NewEntry
    from contextcliff_dagster.studies import Study


KEY_VARIABLES = ("API_KEY", "API_PASSWORD", "OPENAI_API_KEY", "NVIDIA_API_KEY", "NVAPI_KEY")
"""Of the key, in the order in which they are looked at."""
_GIVEN_KEY = "CONTEXTCLIFF_API_PASSWORD"
_SECONDS = 60.0

_ENDPOINT_OPTIONS = together(
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


server_options = gathered_as("server", ServerOptions, _ENDPOINT_OPTIONS)
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
    from contextcliff_dagster.inference.models.models_file import NewEntry

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


_LATER = ("further_rounds", "compat", "word_list")
"""Keys that are in the digest only where they are used: older studies keep their names."""
_TEMPLATE_TOKENS = 128
"""Left free of a model's window by default: where the chat template is not in the count, 100 tokens
are kept for it, and a prompt that might not fit is not sent."""
CONTINUATION_OPTIONS = SectionOptions(
    "continuation",
    ContinuationSection,
    "contextcliff continuation",
    keys=(
        *("max_context", "start_context", "divisions", "rounds", "passages"),
        *("max_tokens", "temperature", "top_k", "top_p", "seed"),
    ),
    names={"temperature": "--temp"},
    help={
        "max_context": "Largest window, as 16384 or 16k (default: the model's less 128, else 16k)."
    },
)


def max_context(keys: Mapping[str, Any]) -> int | None:
    """`--max-context` in tokens; None where it is not given.

    Raises:
        StudyError: it is no number of tokens.
    """
    try:
        return tokens_of(keys["max_context"]) if "max_context" in keys else None
    except ValueError as error:
        raise StudyError(f"--max-context: {error}; see `contextcliff continuation -h`.") from None


def made_study(
    texts: Sequence[Path],
    keys: Mapping[str, Any],
    entries: Sequence[ModelEntry],
    tokenizer: str | None = None,
) -> Study:
    """Return the study that the options describe; options like these get a name of their own.

    ``keys``: of the section. ``entries``: the models, of which the first gives the largest window
    and the ``tokenizer`` where neither is named.

    Raises:
        StudyError: a text is not there, or an option has no such value.
    """
    from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER

    section: dict[str, Any] = {"texts": [_file(text) for text in texts], **keys}
    if "max_context" not in section and (window := entries[0].window_tokens):
        # The largest context of a compat study leaves room for a template itself.
        spared = 0 if keys.get("compat") else _TEMPLATE_TOKENS
        section["max_context"] = max(window - spared, 1)
    counts = tokenizer or entries[0].tokenizer or DEFAULT_TOKENIZER
    models = [entry.name for entry in entries]
    made = CONTINUATION_OPTIONS.study(
        section,
        description="Continuation: prose over the size of the context.",
        tokenizer=counts,
        models=models,
    )
    dumped = made.sections["continuation"].model_dump(mode="json")
    checked = {key: value for key, value in dumped.items() if key not in _LATER or value}
    if checked["embeddings"] == "auto":
        del checked["embeddings"]  # names of studies from before there was this key
    decides = digest([checked, counts, models])
    stem = re.sub(r"[^a-z0-9]+", "-", texts[0].stem.lower()).strip("-")[:30].strip("-") or "text"
    more = f"-and-{len(texts) - 1}" if len(texts) > 1 else ""
    return made.changed(name=f"continuation-{stem}{more}-{decides}")


def _file(text: Path) -> str:
    """The text's absolute path.

    Raises:
        StudyError: there is no such file.
    """
    file = text.expanduser().absolute()
    try:
        is_file = file.is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise StudyError(
            f"There is no text {text}; name a file of prose (txt, md, html, pdf, docx, epub)."
        )
    return str(file)


_OPTIONS = together(
    click.option(
        "--compat",
        type=click.Choice(["context-tester"]),
        help="Measure one passage as that tool does, and write its files to --results.",
    ),
    path_option(
        "--word-list",
        "FILE",
        "Familiar words, one on each line, for the cloze score of --compat and --reanalyze.",
    ),
    folder_option("--results", "Where --compat makes the folder of the run (default: results)."),
)


@dataclass(frozen=True, slots=True)
class CompatOptions:
    """What the person gave; None: not given."""

    compat: str | None = None
    word_list: Path | None = None
    results: Path | None = None

    def run_name(self, entry: ModelEntry, run_id: str | None, *, at_address: bool) -> RunName:
        """What the run of ``entry`` is called; ``run_id`` by default the time.

        ``at_address``: a model of `--api-url` has the name that its server gives it.
        """
        from contextcliff_dagster.extensions.continuation.compat.runs import RunName

        model = (entry.model_id if at_address else None) or entry.name
        return RunName(model, run_id or datetime.now().strftime("%Y%m%d-%H%M%S"))

    def check(self, *, reanalyze: bool) -> None:
        """Raise UsageError for an option that would change nothing."""
        if self.compat is None and self.results is not None:
            raise click.UsageError("--results goes with --compat; add that, or leave it out.")
        if self.compat is None and self.word_list is not None and not reanalyze:
            raise click.UsageError(
                "--word-list is for --compat and --reanalyze; nothing else uses a list of words."
            )

    def keys(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of the section with those of `--compat`.

        Raises:
            StudyError: the word list cannot be read.
        """
        if self.compat is None:
            return dict(keys)
        own: dict[str, Any] = {"compat": self.compat}
        if self.word_list is not None:
            from contextcliff_dagster.extensions.continuation.compat.metrics import read_word_list

            read_word_list(self.word_list)
            own["word_list"] = str(self.word_list.expanduser().absolute())
        return {**keys, **own}


compat_options = gathered_as("compat", CompatOptions, _OPTIONS)
"""Gives a command these options as one ``compat: CompatOptions``."""


def measure_compat(
    study: Study, entry: ModelEntry, results: Path, named: RunName, options: RunOptions
) -> None:
    """Measure ``study`` with its retries and replacements, and write the folder of the run.

    What is measured stays in the ledger: after an interruption the same command goes on.

    ``results``: where the folder appears, under ``named``.

    Raises:
        ContextCliffError: the folder is there already, or the study cannot be measured.
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
        done = run_made_study(study, options)
        if done is None:
            return
        options = replace(options, campaign=done.campaign)
        if with_further_rounds(study, store, CONTINUATION, done.campaign) == study:
            break
    with StudyRun.open(study, store, done.campaign) as run:
        found = generations_of(run, CONTINUATION, entry.name)
    print_profiled(done, as_json=options.as_json)
    if found.open_sizes:
        sizes = ", ".join(f"{size:,}" for size in found.open_sizes)
        say(f"Rounds at {sizes} tokens have no answer yet; the same command asks for them again.")
        return
    embedding = embedding_of(entry)
    say(
        f"Coherence is by {embedding.name}."
        if embedding.name
        else "No embedder is here: coherence is written as 0, as Context-Tester does."
    )
    metadata = metadata_of(study, entry, named, found, embedding.name)
    written = write_folder(folder, study, metadata, found, embedding.embed)
    if options.as_json:
        say(f"Result folder: {folder}")
        return
    from contextcliff_dagster.extensions.continuation.report.run_page import run_summary

    print_run(run_summary(written.run))
    for path in written.files:
        click.echo(path)


def _say_notes(study: Study, *, repeated: bool) -> None:
    section = study.sections["continuation"]
    if repeated:
        say(
            "Note: the text is too short for the largest window and is repeated, so the author's "
            "continuation may be in the context."
        )
    if not section.word_list:
        say("Note: without --word-list there are no cloze score and no reading level.")


def print_run(summary: Mapping[str, Any]) -> None:
    """The averages of a run (`comparison.run_summary`) and the author's figures, as a table."""
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
