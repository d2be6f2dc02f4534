"""`--analyze` and `--reanalyze`: finished runs analysed, or their texts measured, again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import print_json, print_table
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import folder_option, gathered_as, path_option, together
from contextcliff_dagster.extensions.continuation.commands.endpoint import (
    ServerOptions,
    served_model,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import Written
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import Embedding

_SHOWN = (*("vocabulary_diversity", "cloze_score", "adjacent_coherence", "bigram_repetition_rate"),)

_OPTIONS = together(
    path_option(
        "--analyze",
        "DIR",
        "Trends, CSV, texts and picture of a finished run, written anew into its folder.",
    ),
    path_option(
        "--reanalyze", "DIR", "Measure the texts of a finished run again, into a new folder."
    ),
    folder_option("--out", "Folder of --reanalyze (default: DIR-reanalyzed)."),
)


@dataclass(frozen=True, slots=True)
class FinishedRunOptions:
    """What the person gave; None: not given."""

    analyze: Path | None = None
    reanalyze: Path | None = None
    out: Path | None = None

    @property
    def asked(self) -> bool:
        """Whether a finished run is meant, and nothing is to be measured."""
        return self.analyze is not None or self.reanalyze is not None

    def check(self, texts: tuple[Path, ...]) -> None:
        """Raise UsageError where options exclude each other."""
        if self.analyze is not None and self.reanalyze is not None:
            raise click.UsageError("--analyze and --reanalyze exclude each other; name one.")
        if self.asked and texts:
            option = "--analyze" if self.analyze is not None else "--reanalyze"
            raise click.UsageError(f"{option} reads a finished run; leave out {texts[0]}.")
        if self.out is not None and self.reanalyze is None:
            raise click.UsageError("--out is the folder of --reanalyze; add that, or leave it out.")


finished_run_options = gathered_as("finished", FinishedRunOptions, _OPTIONS)
"""Gives a command these options as one ``finished: FinishedRunOptions``."""


def analyse_finished(
    finished: FinishedRunOptions, word_list: Path | None, server: ServerOptions, as_json: bool
) -> None:
    """Do what the options ask, and print the averages and the files.

    Raises:
        ContextCliffError: the run or the word list cannot be read, or files cannot be written.
    """
    from contextcliff_dagster.extensions.continuation.compat.metrics import read_word_list
    from contextcliff_dagster.extensions.continuation.compat_runs.folder import (
        analyse_again,
        measure_again,
    )

    if finished.analyze is not None:
        if word_list is not None:
            raise click.UsageError("--word-list goes with --reanalyze; --analyze measures no text.")
        _print(analyse_again(finished.analyze), as_json=as_json)
        return
    assert finished.reanalyze is not None
    folder = finished.reanalyze
    familiar = read_word_list(word_list) if word_list is not None else None
    named = folder if folder.name not in ("", "..") else folder.resolve()
    out = finished.out or named.parent / f"{named.name}-reanalyzed"
    with _embedding(server) as embedding:
        written = measure_again(folder, out, familiar, embedding)
    if embedding.name is None:
        say("No embedder is here: figures of coherence stay as they were.")
    else:
        say(f"Coherence is by {embedding.name}; the author's figures stay as they were.")
    if familiar is None:
        say("Without --word-list, cloze score and reading level stay as they were.")
    _print(written, as_json=as_json)


@contextmanager
def _embedding(server: ServerOptions) -> Iterator[Embedding]:
    from contextcliff_dagster.extensions.continuation.compat_runs.generations import embedding_of

    if server.api_url is None:
        yield embedding_of(None)
        return
    with served_model(server, 1) as (entry, _):
        yield embedding_of(entry)


def _print(written: Written, *, as_json: bool) -> None:
    from contextcliff_dagster.extensions.continuation.comparison import run_summary

    summary = run_summary(written.run)
    if as_json:
        print_json({**summary, "files": [str(path) for path in written.files]})
        return
    print_run(summary)
    for path in written.files:
        click.echo(path)


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


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
