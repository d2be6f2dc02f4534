"""How a log of another tool is to be read: options of every command that reads one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.options import together

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

_OPTIONS = together(
    click.option("--metric", metavar="NAME", help="The score to take of a log that has several."),
    click.option(
        "--score",
        "own_score",
        type=click.Choice(["em", "f1", "contained"]),
        help="Score a log's answers here instead, against the accepted ones in it.",
    ),
    click.option(
        "--tokenizer",
        metavar="NAME",
        help="Count lengths from the texts of a log or table, e.g. with tiktoken:o200k_base "
        "(default: a log's own lengths, else that); `contextcliff tokenizers` lists more.",
    ),
    click.option(
        "--documents",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The data set of a log that leaves the documents out: _id and context.",
    ),
    click.option(
        "--partial", is_flag=True, help="Take what a run that failed or was stopped has logged."
    ),
)


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options, given to ``command`` as one ``log: LogOptions``."""

    @functools.wraps(command)
    def gathered(**given: Any) -> None:
        from contextcliff_dagster.score_files import LogOptions

        names = ("metric", "own_score", "tokenizer", "documents", "partial")
        options = {name: given.pop(name) for name in names}
        if options["metric"] is not None and options["own_score"] is not None:
            raise click.UsageError("--metric takes a log's score and --score makes one: choose one")
        command(log=LogOptions(**options, open_tokenizer=_open_tokenizer), **given)

    return _OPTIONS(gathered)


def _open_tokenizer(name: str) -> Tokenizer:
    # Imported when a tokenizer is asked for: most files bring their lengths.
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)
