"""Studies made on the spot of the options of `continuation`, those of `--compat` too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import RunOptions, run_made_study
from contextcliff_dagster.cli.measuring.options import SectionOptions, digest
from contextcliff_dagster.cli.options import folder_option, gathered_as, path_option, together
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.continuation.commands.finished_runs import print_run
from contextcliff_dagster.extensions.continuation.section import ContinuationSection, tokens_of
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import RunName
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study


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
        from contextcliff_dagster.extensions.continuation.compat_runs.folder import RunName

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
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import (
        metadata_of,
        new_folder,
        slices_of,
        write_folder,
    )
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import (
        embedding_of,
        generations_of,
        with_further_rounds,
    )
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
    from contextcliff_dagster.extensions.continuation.comparison import run_summary

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
