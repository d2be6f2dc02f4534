"""`continuation`: how a model's writing changes as its context grows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_json, print_table
from contextcliff_dagster.cli.options import as_share, common_options

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.continuation.comparison import View

_VIEWS: dict[str, View] = {
    "plot_rounds": "rounds",
    "enhanced": "enhanced",
    "convergence": "convergence",
}
_SHOWN = (*("vocabulary_diversity", "cloze_score", "adjacent_coherence", "bigram_repetition_rate"),)


@click.group()
def continuation() -> None:
    """How does a model's writing change as its context grows?"""


@continuation.command()
@click.argument(
    "runs", nargs=-1, required=True, metavar="DIR|CSV...", type=click.Path(path_type=Path)
)
@click.option("--plot-rounds", is_flag=True, help="Each round as a line next to the average.")
@click.option(
    "--enhanced",
    is_flag=True,
    help="Composite score, variation, effects and tests of one run (10 rounds or more).",
)
@click.option(
    "--convergence", is_flag=True, help="At which sizes each metric is near the author's text."
)
@click.option(
    "--tolerance",
    default="0.1",
    show_default=True,
    callback=as_share,
    metavar="SHARE",
    help="What counts as near, as .1 or 10%.",
)
@click.option(
    "--dpi",
    type=click.IntRange(50, 600),
    default=300,
    show_default=True,
    help="Pixels an inch; a picture is 11.5 inches wide.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("continuation-comparison"),
    show_default=True,
    metavar="DIR",
    help="Folder of the files.",
)
@common_options
def compare(
    runs: tuple[Path, ...], tolerance: float, dpi: int, out: Path, as_json: bool, **views: bool
) -> None:
    """Draw one to six finished runs: folders of results, or CSV files of their averages.

    Results of Context-Tester are read, of all its versions. Writes a picture and its figures as
    JSON; without one of the three view options, four metrics over context size.

    \b
    Examples:
      contextcliff continuation compare results/model1 results/model2
      contextcliff continuation compare results/model1 --enhanced --dpi 600
    """
    from contextcliff_dagster.experiments.continuation.comparison import (
        CompareOptions,
        compare_results,
    )

    done = compare_results(runs, CompareOptions(_view(views), _near(tolerance), dpi, out))
    if as_json:
        print_json({**done.result, "files": [str(path) for path in done.files]})
        return
    for run in done.result["runs"]:
        click.echo(run["name"])
        rows = [
            [f"{int(size):,}", *(_cell(figures.get(metric)) for metric in _SHOWN)]
            for size, figures in run["averages"].items()
        ]
        author = [["author", *(_cell(run["author"].get(metric)) for metric in _SHOWN)]]
        print_table(["context", *_SHOWN], [*rows, *(author if run["author"] else [])])
        click.echo()
    for path in done.files:
        click.echo(path)


def _view(views: dict[str, bool]) -> View:
    chosen = [name for name, wanted in views.items() if wanted]
    if len(chosen) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(f"{options} are different pictures; choose one.")
    return _VIEWS[chosen[0]] if chosen else "standard"


def _near(tolerance: float) -> float:
    if not 0 < tolerance < 1:
        raise click.UsageError(f"--tolerance is {tolerance:g}; it is a share between 0 and 1.")
    return tolerance


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "-"
