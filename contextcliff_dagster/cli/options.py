"""Options that several commands share: study, store, log, and spending limits."""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
    from contextcliff_dagster.score_files import LogOptions

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[Callable[..., None]], Callable[..., None]]

TASK_ALIASES = {"multi_hop_qa": "two_hop", "multi_hop": "two_hop", "single_hop_qa": "lookup"}
"""Common alternative names for the tasks of the reference corpus."""

DEFAULT_STUDY = "reference"

MOST_SAMPLES, MOST_TOKENS = 1_000_000, 1_000_000_000
"""Limits on samples per bin and tokens per text; larger values are typing errors."""


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """Options that define what to measure (``data`` is a path or URL); None: the study's value."""

    study: str | None
    data: str | Path | None = None
    dataset: str | None = None
    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seed: int | None = None
    samples_per_bin: int | None = None
    questions_per_document: int | None = None
    allow_synthetic_length: bool = False
    questions: str | None = None
    columns: Mapping[str, str] | None = None
    prompt: Path | None = None
    replicates: int | None = None
    tolerance: float | None = None
    score: tuple[str, ...] = ()
    ttft_limit: float | None = None
    trust_study: bool = False


class GroupedCommand(click.Command):
    """A command whose help shows its options in sections; those in none come last."""

    option_groups: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Section -> names of its parameters."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = {param.name: param for param in self.get_params(ctx)}
        for title, names in (*self.option_groups.items(), ("Options", tuple(left))):
            params = [left.pop(name) for name in names if name in left]
            rows = [row for param in params if (row := param.get_help_record(ctx))]
            with formatter.section(title):
                formatter.write_dl(rows)


class Finite(click.FloatRange):
    """A finite number in a range; excludes ``inf`` and ``nan``, which passes every range check."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(TypeError, ValueError):
            if not math.isfinite(float(value)):
                self.fail(f"{value!r} is not an amount.", param, ctx)
        return super().convert(value, param, ctx)


def as_share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a share: a number (.3) or a percentage (30%)."""
    if value is None:
        return None
    try:
        return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a share; use .3 or 30%", ctx, param) from None


def _milliseconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse ``2s``, ``2.5s`` or ``2000ms`` to milliseconds."""
    if value is None:
        return None
    written = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", value.strip())
    ms = float(written[1]) * (1_000 if written[2] == "s" else 1) if written else 0.0
    if not 0 < ms < math.inf:
        raise click.BadParameter(f"{value!r} is not a time; use 2s or 2000ms.", ctx, param)
    return ms


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine option decorators into one; `--help` shows them in the given order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def count_option(
    name: str, least: int, most: int, help: str, into: str | None = None, **more: Any
) -> Callable[[F], F]:
    """Create an option for an integer N in a range; ``into`` names its parameter."""
    names = (name,) if into is None else (name, into)
    look = {"metavar": "N", "help": help, **more}
    return click.option(*names, type=click.IntRange(least, most), **look)


def folder_option(name: str, help: str, **more: Any) -> Callable[[F], F]:
    """Create an option for a folder, which need not exist."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option(name, type=kind, metavar="DIR", help=help, **more)


def file_option(name: str, help: str, **more: Any) -> Callable[[F], F]:
    """Create an option for a file, which need not exist."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(name, type=kind, metavar="FILE", help=help, **more)


def path_option(name: str, metavar: str, help: str) -> Callable[[F], F]:
    """Create an option for a file or a folder."""
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, help=help)


def share_option(
    name: str, help: str, callback: Callable[..., Any] = as_share, **more: Any
) -> Callable[[F], F]:
    """Make an option for a share, a number or a percentage."""
    return click.option(name, callback=callback, metavar="SHARE", help=help, **more)


chance_option = share_option(
    "--chance", "Mean score of guessing, e.g. .25 of four options (default: 0).", default="0"
)


def gathered_as(
    name: str, make: Callable[..., Any], options: Decorator, names: Sequence[str] | None = None
) -> Decorator:
    """Return a decorator that passes ``options`` to a command as one argument ``name``.

    ``make`` builds it from their values. ``names`` lists the options; None: ``make``'s parameters.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def gathered(**values: Any) -> None:
            parameters = names or inspect.signature(make).parameters
            value = make(**{key: values.pop(key) for key in parameters if key in values})
            command(**{name: value}, **values)

        return options(gathered)

    return decorate


def _columns(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Parse ``length_tokens=token_count,score=correct`` pairs to one mapping."""
    named: dict[str, str] = {}
    for pair in (pair for item in value for pair in item.split(",")):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs):
            problem = f"{pair!r} is not OURS=THEIRS; use e.g. score=llm_judge_output."
            raise click.BadParameter(problem, ctx, param)
        if named.get(ours, theirs) != theirs:
            problem = f"{ours} is both {named[ours]} and {theirs}; choose one of them."
            raise click.BadParameter(problem, ctx, param)
        named[ours] = theirs
    return named


columns_option = click.option(
    "--columns",
    callback=_columns,
    multiple=True,
    metavar="OURS=THEIRS,...",
    help="Column names of the table, e.g. length_tokens=token_count,score=judge.correct (a key in "
    "an object).",
)


def _use_store(ctx: click.Context, _: click.Parameter, folder: Path | None) -> None:
    # The environment is the only channel that all packages and Dagster steps read.
    if folder is not None:
        os.environ["CONTEXTCLIFF_HOME"] = str(folder.expanduser().absolute())


# Read before parsing, so that parsing errors obey it too: see `app.main`.
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
verbose_option = click.option("--verbose", is_flag=True, help="Show Dagster's own log.")
with_answers_option = click.option(
    "--with-answers",
    is_flag=True,
    help="Include questions and answers in report.html (default: numbers only).",
)
only_models_option = click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Use only this model; repeatable."
)
profiled_campaign_option = click.option(
    "--campaign", metavar="NAME", help="Campaign to use (default: the newest profiled)."
)
kept_campaign_option = click.option(
    "--campaign", metavar="NAME", help="Use only this campaign (default: all campaigns)."
)

common_options = together(
    click.option(
        "--store",
        type=click.Path(path_type=Path),
        callback=_use_store,
        expose_value=False,
        metavar="DIR",
        help="Folder for results (default: CONTEXTCLIFF_HOME, else data/store of a checkout).",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout."),
    debug_option,
)

_STUDY = together(
    click.argument("study", required=False),
    click.option(
        "--data",
        metavar="PATH|URL",
        help="Your data: a folder of documents, a table of examples (also of the Hugging Face hub, "
        "hf://OWNER/NAME), or a public benchmark.",
    ),
    click.option(
        "--questions",
        metavar="FILE|recall",
        help="Questions on the documents of --data: a table, or generated verbatim recall.",
    ),
    columns_option,
    click.option(
        "--dataset",
        metavar="NAME",
        help="A corpus by name: python-source, or a public benchmark, from data/corpora/NAME or "
        "--data (default: reference).",
    ),
    click.option(
        "--task",
        "tasks",
        multiple=True,
        metavar="TASK",
        help="Type of question, e.g. lookup, two_hop; repeatable.",
    ),
    click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the sample."),
    click.option(
        "--samples-per-bin",
        "--samples_per_bin",
        type=click.IntRange(1, MOST_SAMPLES),
        metavar="N",
        help="Examples per length bin.",
    ),
    click.option(
        "--trust-study",
        is_flag=True,
        help="Let STUDY read files outside its folder and call servers not in models.yaml.",
    ),
    count_option(
        "--questions-per-document", 1, MOST_SAMPLES, "Maximum number of questions per document."
    ),
    path_option(
        "--prompt", "FILE", "Prompt template: a text file with {document} and {question} in it."
    ),
    count_option(
        "--replicates",
        1,
        MOST_SAMPLES,
        "Ask each question in N wordings: the study's, else neutral ones (at most 10).",
    ),
)


study_options = gathered_as("options", StudyOptions, _STUDY)
"""Decorator that passes the study options to a command as ``options: StudyOptions``.

``--model`` is included if the command defines it, because its meaning differs by command.
"""


ttft_limit_option = click.option(
    "--ttft-limit",
    callback=_milliseconds,
    metavar="TIME",
    help="Find the length up to which 95% of first tokens arrive within TIME, e.g. 2s or 800ms.",
)

spending_options = together(
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="NAME",
        help="Model from models.yaml; repeat to compare several.",
    ),
    click.option(
        "--budget",
        "--budget-usd",
        type=Finite(min=0),
        metavar="USD",
        help="Hard limit on the cost of this campaign.",
    ),
    click.option(
        "--deadline",
        type=Finite(0, 1e9, min_open=True),
        metavar="SECONDS",
        help="Send no more calls after this time; measured answers are kept.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Show what would be measured and its cost; make no call and store nothing.",
    ),
    click.option("--campaign", metavar="NAME", help="Continue this campaign (default: newest)."),
    click.option("--yes", is_flag=True, help="Spend money without asking."),
    verbose_option,
)


_OPTIONS = together(
    click.option("--metric", metavar="NAME", help="Score to use from a log with several."),
    click.option(
        "--score",
        "own_score",
        type=click.Choice(["em", "f1", "contained"]),
        help="Rescore a log's answers against its accepted answers.",
    ),
    click.option(
        "--tokenizer",
        metavar="NAME",
        help="Count lengths from the texts of a log or table, e.g. with tiktoken:o200k_base "
        "(default: a log's own lengths, else that); `contextcliff tokenizers` lists more.",
    ),
    file_option("--documents", "Data set with the documents (_id, context) of a log without them."),
    click.option("--partial", is_flag=True, help="Accept the log of a failed or stopped run."),
    columns_option,
)


def _open_tokenizer(name: str) -> Tokenizer:
    # Imported on demand, because most files include lengths.
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)


def _log_options(**options: Any) -> LogOptions:
    from contextcliff_dagster.score_files import LogOptions

    if options["metric"] is not None and options["own_score"] is not None:
        raise click.UsageError("--metric takes a log's score and --score makes one: choose one")
    return LogOptions(**options, open_tokenizer=_open_tokenizer)


_NAMES = ("metric", "own_score", "tokenizer", "documents", "partial", "columns")
log_options = gathered_as("log", _log_options, _OPTIONS, _NAMES)
"""Decorator that passes these options to a command as ``log: LogOptions``."""
