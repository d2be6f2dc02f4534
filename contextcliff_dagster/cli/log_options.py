"""How a log of another tool is to be read: options of every command that reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.options import file_option, gathered_as, together

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
    from contextcliff_dagster.score_files import LogOptions


def _columns(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """``length_tokens=token_count,score=correct`` as a mapping, several of them joined."""
    named: dict[str, str] = {}
    for pair in (pair for one in value for pair in one.split(",")):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            problem = f"{pair!r} is not OURS=THEIRS; write e.g. score=llm_judge_output."
            raise click.BadParameter(problem, ctx, param)
        if named.get(ours, theirs) != theirs:
            problem = f"{ours} is both {named[ours]} and {theirs}; name one of them."
            raise click.BadParameter(problem, ctx, param)
        named[ours] = theirs
    return named


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
    file_option(
        "--documents", "The data set of a log that leaves the documents out: _id and context."
    ),
    click.option(
        "--partial", is_flag=True, help="Take what a run that failed or was stopped has logged."
    ),
    click.option(
        "--columns",
        callback=_columns,
        multiple=True,
        metavar="OURS=THEIRS,...",
        help="The table's names of columns, e.g. length_tokens=token_count,score=correct.",
    ),
)


def _open_tokenizer(name: str) -> Tokenizer:
    # Imported when a tokenizer is asked for: most files bring their lengths.
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)


def _log_options(**options: Any) -> LogOptions:
    from contextcliff_dagster.score_files import LogOptions

    if options["metric"] is not None and options["own_score"] is not None:
        raise click.UsageError("--metric takes a log's score and --score makes one: choose one")
    return LogOptions(**options, open_tokenizer=_open_tokenizer)


_NAMES = ("metric", "own_score", "tokenizer", "documents", "partial", "columns")
log_options = gathered_as("log", _log_options, _OPTIONS, _NAMES)
"""Gives a command the options as one ``log: LogOptions``."""
