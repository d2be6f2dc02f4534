"""The `continuation` command: measure texts, and compare or reanalyze finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import print_json
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import (
    RunOptions,
    check_budget,
    measure_made_study,
)
from contextcliff_dagster.cli.measuring.options import named_study
from contextcliff_dagster.cli.options import (
    common_options,
    folder_option,
    gathered_as,
    path_option,
    share_option,
    spending_options,
    together,
    with_answers_option,
)
from contextcliff_dagster.extensions.continuation.made_study import (
    CONTINUATION_OPTIONS,
    DEFAULT_URL,
    CompatOptions,
    ServerOptions,
    compat_options,
    made_study,
    max_context,
    measure_compat,
    print_run,
    print_written,
    served_model,
    server_options,
    study_of_run,
    text_file,
    without_refused,
)
from contextcliff_dagster.extensions.continuation.section import BUILT_IN

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.compat.runs import Embedding
    from contextcliff_dagster.extensions.continuation.report.run_page import View
    from contextcliff_dagster.inference.models.models_file import ModelEntry


_OPTIONS = together(
    path_option(
        "--analyze",
        "DIR",
        "Rewrite the trends, CSV, texts and picture of a finished run in its folder.",
    ),
    path_option(
        "--reanalyze", "DIR", "Measure the texts of a finished run again, and write a new folder."
    ),
    folder_option("--out", "Folder that --reanalyze writes (default: DIR-reanalyzed)."),
)


@dataclass(frozen=True, slots=True)
class FinishedRunOptions:
    """Options that specify a finished run; None if not given."""

    analyze: Path | None = None
    reanalyze: Path | None = None
    out: Path | None = None

    @property
    def asked(self) -> bool:
        """Return whether a finished run is specified, in which case nothing is measured."""
        return self.analyze is not None or self.reanalyze is not None

    def check(self, texts: tuple[Path, ...]) -> None:
        """Raise UsageError if the options contradict each other."""
        if self.analyze is not None and self.reanalyze is not None:
            raise click.UsageError("--analyze and --reanalyze exclude each other; use one of them.")
        if self.asked and texts:
            option = "--analyze" if self.analyze is not None else "--reanalyze"
            raise click.UsageError(f"{option} reads a finished run; leave out {texts[0]}.")
        if self.out is not None and self.reanalyze is None:
            raise click.UsageError("--out is the folder of --reanalyze; add it, or drop --out.")


finished_run_options = gathered_as("finished", FinishedRunOptions, _OPTIONS)
"""Decorator that passes these options to a command as ``finished: FinishedRunOptions``."""


def analyse_finished(
    finished: FinishedRunOptions, word_list: Path | None, server: ServerOptions, as_json: bool
) -> None:
    """Analyze or remeasure a finished run, and print its averages and files."""
    from contextcliff_dagster.extensions.continuation.compat.metrics import read_word_list
    from contextcliff_dagster.extensions.continuation.compat.runs import (
        analyse_again,
        measure_again,
    )

    if finished.analyze is not None:
        if word_list is not None:
            raise click.UsageError("--analyze does not use --word-list; leave it out.")
        print_written(analyse_again(finished.analyze), as_json=as_json)
        return
    assert finished.reanalyze is not None
    folder = finished.reanalyze
    familiar = read_word_list(word_list) if word_list is not None else None
    source = folder if folder.name not in ("", "..") else folder.resolve()
    out = finished.out or source.parent / f"{source.name}-reanalyzed"
    with _embedding(server) as embedding:
        written = measure_again(folder, out, familiar, embedding)
    if embedding.name is None:
        say("No embedder is installed, so the coherence figures stay as they were.")
    else:
        say(f"Coherence is by {embedding.name}; the author's figures stay as they were.")
    if familiar is None:
        of_this = written.run.metadata["reanalysis_metadata"]
        say(
            "The cloze score uses the built-in list of familiar words; --word-list names another."
            if of_this.get("reanalysis_word_list") == BUILT_IN
            else "Without --word-list, the cloze score and reading level stay as they were."
        )
    print_written(written, as_json=as_json)


@contextmanager
def _embedding(server: ServerOptions) -> Iterator[Embedding]:
    from contextcliff_dagster.extensions.continuation.compat.runs import embedding_of

    if server.api_url is None:
        yield embedding_of(None)
        return
    with served_model(server, 1) as (entry, _):
        yield embedding_of(entry)


_VIEWS: dict[str, View] = {
    "plot_rounds": "rounds",
    "enhanced": "enhanced",
    "convergence": "convergence",
}

_MEASURE = "measure"


class _TextsOrCommand(click.Group):
    """Command group that runs `measure` if no subcommand is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [_MEASURE, *args]
        return super().parse_args(ctx, args)


class _Measure(click.Command):
    """Command `measure`, whose usage line omits its name."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        path = ctx.parent.command_path if ctx.parent else ctx.command_path
        formatter.write_usage(path, "TEXT [TEXT...] [OPTIONS]")


@click.group(cls=_TextsOrCommand)
def continuation() -> None:
    """How does a model's writing change as its context grows?"""


@continuation.command(_MEASURE, cls=_Measure, hidden=True)
@click.argument("texts", nargs=-1, metavar="TEXT...", type=click.Path(path_type=Path))
@server_options
@CONTINUATION_OPTIONS.decorator
@click.option(
    "--model-id", metavar="NAME", help="Name of this study (default: derived from the options)."
)
@compat_options
@finished_run_options
@spending_options
@with_answers_option
@common_options
def measure(
    texts: tuple[Path, ...],
    server: ServerOptions,
    compat: CompatOptions,
    finished: FinishedRunOptions,
    models: tuple[str, ...],
    **given: Any,
) -> None:
    """Have a model continue texts at growing context sizes, and print the report.

    Its prose is compared with what the author wrote next. The model comes from models.yaml or
    from a server. `contextcliff continuation compare` draws finished runs.

    \b
    Examples:
      contextcliff continuation novel.txt --api-url http://localhost:5001
      contextcliff continuation novel.txt --model my-model --max-context 16k --rounds 5 --dry-run
          Show what it would cost, without any call.
      contextcliff continuation novel.txt --api-url http://localhost:5001 --compat context-tester
          Measure as Context-Tester does, and write its files.
    """
    keys, model_id = given.pop("keys"), given.pop("model_id")
    options = RunOptions(**given)
    finished.check(texts)
    compat.check(reanalyze=finished.reanalyze is not None)
    if finished.asked:
        if models:
            raise click.UsageError("A finished run needs no model; leave out --model.")
        analyse_finished(finished, compat.word_list, server, options.as_json)
        return
    check_budget()
    if not texts:
        raise click.UsageError("No text is named; add a file of prose, such as novel.txt.")
    for text in texts:  # before a server is asked
        text_file(text)
    if compat.compat is not None and not models and server.api_url is None:
        say(f"Note: no model is named, so {DEFAULT_URL} is asked; --api-url names another server.")
        server = replace(server, api_url=DEFAULT_URL)
    with _models(server, models, keys, dry_run=options.dry_run) as (entries, tokenizer):
        keys = without_refused(keys, server, entries[0])
        section_keys = {**compat.keys(keys), **server.embeddings(entries[0])}
        unreported = max_context(keys) if server.api_url else None
        study = made_study(texts, section_keys, entries, tokenizer, unreported, model_id)
        if compat.compat is not None:
            if len(entries) != 1:
                raise click.UsageError("--compat measures one model; run it once for each.")
            run_name = compat.run_name(entries[0], model_id, at_address=server.api_url is not None)
            study = study_of_run(study, run_name) if model_id is not None else study
            measure_compat(study, entries[0], compat.results or Path("results"), run_name, options)
            return
        if model_id is not None:
            study = named_study(study, model_id, "--model-id", "study")
        measure_made_study(study, options)


@contextmanager
def _models(
    server: ServerOptions, models: tuple[str, ...], keys: Mapping[str, Any], *, dry_run: bool
) -> Iterator[tuple[list[ModelEntry], str | None]]:
    """Yield the models to measure, and the tokenizer that counts, if any; a dry run calls none."""
    if (server.api_url is None) == (not models):
        raise click.UsageError(
            "Which model? Give either --model NAME or --api-url http://localhost:5001."
        )
    if server.api_url is not None:
        sampled = None if dry_run else keys
        with served_model(server, max_context(keys), sampled) as (entry, tokenizer):
            yield [entry], tokenizer
        return
    for name in ("api_password", "model_name", "embedding_model", "set_keys"):
        if getattr(server, name):
            option = name.removesuffix("_keys").replace("_", "-")
            raise click.UsageError(
                f"--{option} goes with --api-url; add that, or set it in models.yaml or the study."
            )
    from contextcliff_dagster.inference.models.models_file import get_model

    yield [get_model(name) for name in dict.fromkeys(models)], server.tokenizer


@continuation.command()
@click.argument(
    "runs", nargs=-1, required=True, metavar="DIR|CSV...", type=click.Path(path_type=Path)
)
@click.option("--plot-rounds", is_flag=True, help="Draw each round as a line next to the average.")
@click.option(
    "--enhanced",
    is_flag=True,
    help="Draw composite score, variation, effects and tests of one run (10 rounds or more).",
)
@click.option(
    "--convergence", is_flag=True, help="Draw the sizes at which each metric is near the author."
)
@share_option("--tolerance", "Largest near difference, as .1.", default="0.1", show_default=True)
@click.option(
    "--dpi",
    type=click.IntRange(50, 600),
    default=300,
    show_default=True,
    help="Pixels per inch; a picture is 11.5 inches wide.",
)
@folder_option(
    "--out", "Folder for the files.", default=Path("continuation-comparison"), show_default=True
)
@common_options
def compare(
    runs: tuple[Path, ...], tolerance: float, dpi: int, out: Path, as_json: bool, **views: bool
) -> None:
    """Draw one to six finished runs: folders of results, or CSV files of their averages.

    Results of every version of Context-Tester can be read. The command writes a picture and its
    figures as JSON. Without one of the three view options, it draws four metrics by context size.

    \b
    Examples:
      contextcliff continuation compare results/model1 results/model2
      contextcliff continuation compare results/model1 --enhanced --dpi 600
    """
    from contextcliff_dagster.extensions.continuation.report.run_page import (
        CompareOptions,
        compare_results,
    )

    if not 0 < tolerance < 1:
        raise click.UsageError(f"--tolerance is {tolerance:g}; give a share between 0 and 1.")
    comparison = compare_results(runs, CompareOptions(_view(views), tolerance, dpi, out))
    if as_json:
        print_json({**comparison.result, "files": [str(path) for path in comparison.files]})
        return
    for run in comparison.result["runs"]:
        print_run(run)
    for path in comparison.files:
        click.echo(path)


def _view(views: dict[str, bool]) -> View:
    selected = [name for name, wanted in views.items() if wanted]
    if len(selected) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in selected)
        raise click.UsageError(f"{options} draw different pictures; choose one.")
    return _VIEWS[selected[0]] if selected else "standard"
