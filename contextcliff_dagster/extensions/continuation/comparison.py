"""Compare finished runs: pictures, and the figures that they show as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.continuation.compat.metrics import METRICS
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    Run,
    file_name,
    read_run,
)
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    convergence,
    degradation_statistics,
    trend_analysis,
)
from contextcliff_dagster.extensions.continuation.report.run_page import write_run_page
from contextcliff_dagster.store import write_atomic, write_json

View = Literal["standard", "rounds", "enhanced", "convergence"]

MOST_RUNS = 6


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What is drawn, where to, how fine; ``tolerance``: share of the author's figure that is near.

    ``folder``: of the files; ``dpi``: pixels an inch, of a picture that is 11.5 inches wide.
    """

    view: View = "standard"
    tolerance: float = 0.1
    dpi: int = 300
    folder: Path = Path("continuation-comparison")


@dataclass(frozen=True, slots=True)
class Compared:
    """The files that were written, pictures first, and the content of the JSON file."""

    files: tuple[Path, ...]
    result: dict[str, Any]


def compare_results(paths: Sequence[Path], options: CompareOptions) -> Compared:
    """Draw one to six runs, each a folder of results or a CSV file, and write their figures.

    Files of the same view in the folder are replaced.

    Raises:
        DataError: too many runs for the view, or one without what it needs.
        ScoreFileError: a run cannot be read.
        StoreError: the files cannot be written.
    """
    most = 1 if options.view == "enhanced" else MOST_RUNS
    if not 1 <= len(paths) <= most:
        wanted = "one run" if most == 1 else f"one to {most} runs"
        raise DataError(f"{len(paths)} runs are given; the {options.view} view takes {wanted}.")
    runs = _named_apart([read_run(path) for path in paths], paths)
    for run, path in zip(runs, paths, strict=True):
        _require(run, path, options.view)
    result: dict[str, Any] = {"view": options.view, "runs": [run_summary(run) for run in runs]}
    pictures = _pictures(runs, options, result)
    files = []
    for name, content in pictures.items():
        write_atomic(options.folder / name, content, private=False)
        files.append(options.folder / name)
    page = write_run_page(runs, options.folder)
    write_json(options.folder / f"{options.view}.json", result)
    return Compared((*files, page, options.folder / f"{options.view}.json"), result)


def _pictures(
    runs: Sequence[Run], options: CompareOptions, result: dict[str, Any]
) -> dict[str, bytes]:
    """PNG files by name; what the view computes is added to ``result``."""
    from contextcliff_dagster.extensions.continuation.figures import (
        plot_convergence,
        plot_enhanced,
        plot_rounds,
        plot_standard,
    )

    if options.view == "enhanced":
        found = degradation_statistics(runs[0].rounds)
        result["statistics"] = found
        return {"enhanced.png": plot_enhanced(runs[0], found, options.dpi)}
    if options.view == "convergence":
        near = [convergence(run.averages, run.author, options.tolerance) for run in runs]
        for summary, one in zip(result["runs"], near, strict=True):
            firsts = {metric: one.first_size(metric) for metric in one.near}
            summary |= {"tolerance": one.tolerance, "near": one.near, "first_size": firsts}
            summary["groups"] = one.groups()
        names = [
            "convergence.png" if len(runs) == 1 else f"convergence-{k}-{file_name(run.name)}.png"
            for k, run in enumerate(runs, 1)
        ]
        return {
            name: plot_convergence(run, one, options.dpi)
            for name, run, one in zip(names, runs, near, strict=True)
        }
    plot = plot_rounds if options.view == "rounds" else plot_standard
    return {f"{options.view}.png": plot(runs, options.dpi)}


def _named_apart(runs: Sequence[Run], paths: Sequence[Path]) -> list[Run]:
    """The runs, with their paths as ids where names are the same."""
    names = [run.name for run in runs]
    return [
        run
        if names.count(run.name) == 1
        else Run(
            {**run.metadata, "model_id": str(path)}, run.contexts, run.author, run.context_lengths
        )
        for run, path in zip(runs, paths, strict=True)
    ]


def _require(run: Run, path: Path, view: View) -> None:
    if view in ("rounds", "enhanced") and not run.rounds:
        raise DataError(
            f"{path} has averages only, and the {view} view needs each round; name the folder with "
            "its context_N_results.json files."
        )
    if view == "convergence" and not convergence(run.averages, run.author).near:
        raise DataError(
            f"{path} has no figures of the author's text, which the convergence view compares "
            "with; name a folder whose metadata.json has ground_truth_analysis."
        )


def run_summary(run: Run) -> dict[str, Any]:
    """Averages by context size, the author's figures, trends and degradation points."""
    averages = {
        size: {metric: figures[metric] for metric in METRICS if metric in figures}
        for size, figures in run.averages.items()
    }
    return {
        "name": run.name,
        "text": run.metadata.get("source_text_name"),
        "rounds": {size: len(some) for size, some in run.rounds.items()} or None,
        "author": {metric: run.author[metric] for metric in METRICS if metric in run.author},
        "averages": averages,
        **trend_analysis(run.averages),
    }
