"""`--compat context-tester`: a study measured, and its result folder written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import RunOptions, run_made_study
from contextcliff_dagster.cli.options import folder_option, gathered_as, path_option, together
from contextcliff_dagster.extensions.continuation.commands.finished_runs import print_run
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import RunName
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.studies import Study

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
            from contextcliff_dagster.extensions.continuation.compat.words import read_word_list

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
    from contextcliff_dagster.extensions.continuation.compat_runs.documents import slices_of
    from contextcliff_dagster.extensions.continuation.compat_runs.embedding import embedding_of
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import (
        metadata_of,
        new_folder,
        write_folder,
    )
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import (
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
