"""`analyze`: verdict and report for scores or logs measured by other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.display.output import print_json
from contextcliff_dagster.cli.errors import USER_ERROR, say, sentence
from contextcliff_dagster.cli.options import (
    MOST_TOKENS,
    Finite,
    chance_option,
    count_option,
    debug_option,
    log_options,
    share_option,
    together,
    ttft_limit_option,
)
from contextcliff_dagster.cli.shell import require_address_space
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results import to_json

if TYPE_CHECKING:
    from contextcliff_dagster.cli.score_analysis import Analyzed
    from contextcliff_dagster.score_files import LogOptions


_what = together(
    click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path)),
    click.option(
        "--aggregated",
        is_flag=True,
        help="FILE is a table of means: length_tokens, mean, n, base_score and threshold.",
    ),
    click.option(
        "--scale",
        type=Finite(0, 1e9, min_open=True),
        default=1.0,
        metavar="MAX",
        help="Scores are 0..MAX, e.g. 100 for percentages (default: 1).",
    ),
    click.option("--model", metavar="NAME", help="Analyse only this model, or name the only one."),
    click.option("--by", type=click.Choice(["model"]), help="Analyse each model separately."),
    click.option("--pool", is_flag=True, help="Treat the files as one measurement, not one each."),
)
_how = together(
    share_option(
        "--tolerance",
        "Drop that still counts as safe, e.g. .2 or 20% (default: .3).",
        default="0.3",
    ),
    click.option(
        "--assumption",
        type=click.Choice(["falling", "any"]),
        default="falling",
        help="any: the cap also holds for drops that recover at longer lengths (default: falling).",
    ),
    share_option(
        "--confidence", "Confidence of the cap and every interval (default: .95).", default="0.95"
    ),
    chance_option,
    count_option("--window", 1, MOST_TOKENS, "The model's context window.", metavar="TOKENS"),
    ttft_limit_option,
    click.option(
        "--quick",
        is_flag=True,
        help="Compute only verdict and cap: no sensitivity, no outlook on more data.",
    ),
)
_where = together(
    click.option(
        "--json",
        "target",
        metavar="FILE_OR_DIR",
        help="Write machine-readable results to a file, or one file each to a folder; - prints.",
    ),
    click.option(
        "--out",
        type=click.Path(),
        metavar="FILE_OR_DIR",
        help="Folder for the report, or one file: .png, .pdf, .svg, .csv, .parquet, .json, .html "
        "or .md.",
    ),
    debug_option,
)


@click.command()
@_what
@log_options
@_how
@_where
@click.pass_context
def analyze(
    ctx: click.Context,
    files: tuple[Path, ...],
    aggregated: bool,
    scale: float,
    model: str | None,
    by: str | None,
    pool: bool,
    log: LogOptions,
    tolerance: float,
    assumption: Literal["falling", "any"],
    confidence: float,
    chance: float,
    window: int | None,
    ttft_limit: float | None,
    quick: bool,
    target: str | None,
    out: str | None,
) -> None:
    """Find the verdict and safe cap for existing scores: CSV, TSV, JSON Lines, JSON or Parquet.

    Each row of FILE is an answer with length_tokens and score, and optionally document_id,
    example_id, replicate, model, failure, ttft_ms and others; --columns maps other column names.
    FILE may also be a log, or a folder of logs, of inspect_ai, lm-evaluation-harness, OpenCompass,
    HELM, HELMET, LongBench, BABILong, RULER, LLMTest_NeedleInAHaystack, kvpress, promptfoo,
    deepeval or Langfuse, which is recognised by its content.
    """
    if model is not None and by is not None:
        raise click.UsageError("--model selects one model and --by splits by model: choose one")
    if pool and aggregated:
        raise click.UsageError("--pool takes single answers, not tables of means")
    if ttft_limit is not None and aggregated:
        raise click.UsageError("--ttft-limit takes single answers, not tables of means")
    require_address_space()
    from contextcliff_dagster.cli.score_analysis import AnalyzeOptions, ResultFiles, analyze_files

    kind = None
    if out is not None:
        from contextcliff_dagster.reporting.report_files import format_of

        kind = format_of(out)
    settings = AnalysisSettings(
        tolerance=tolerance,
        assumption=assumption,
        confidence=confidence,
        chance=chance,
        ttft_limit_ms=ttft_limit,
        second_opinions=not quick,
    )
    options = AnalyzeOptions(settings, aggregated, scale, model, by is not None, window, log)
    groups = [files] if pool else [(path,) for path in files]
    result_files = ResultFiles.of(target, [group[0] for group in groups], by_model=by is not None)
    errors: list[ContextCliffError] = []
    done: list[Analyzed] = []
    paths: list[Path] = []
    for group in groups:
        analyzed = list(analyze_files(group, options, errors))
        done += analyzed
        paths += result_files.write(group[0], [item.result for item in analyzed])
    if target == "-":
        results = to_json([item.result for item in done])
        if by is not None or len(groups) > 1:
            print_json(results)
        elif results:
            print_json(results[0])
    else:
        _print(done)
    if out is not None and done:
        paths += _report(done, Path(out), kind, errors)
    if target != "-":
        for path in paths:
            click.echo(f"Written: {path}")
    for error in errors:
        say(f"contextcliff: {sentence(str(error))}")
    if errors:
        ctx.exit(USER_ERROR)


def _print(done: Sequence[Analyzed]) -> None:
    from contextcliff_dagster.reporting.terminal import (
        comparison_line,
        definition_lines,
        risk_report,
    )

    for item in done:
        click.echo(risk_report(item.result))
        if item.answers is None:  # a table of means allows only these definitions
            click.echo("\n".join(["", *definition_lines(item.result)]))
        for warning in item.result.warnings:
            click.echo(f"Note: {sentence(warning)}")
        click.echo()
    if line := comparison_line([item.result for item in done]):
        click.echo(f"{line}\n")


def _report(
    done: Sequence[Analyzed], out: Path, kind: str | None, errors: Sequence[ContextCliffError]
) -> tuple[Path, ...]:
    from contextcliff_dagster.reporting.length_profile.page import all_pictures
    from contextcliff_dagster.reporting.report_files import write_file, write_report

    names = [item.result.model for item in done]
    answers = [item.answers for item in done if item.answers is not None]
    records = None
    # Answers are matched to models by name, so two results of the same name cannot be separated.
    if answers and len(set(names)) == len(names):
        import pandas as pd

        records = pd.concat(answers, ignore_index=True)
    files = list(dict.fromkeys(item.path.name for item in done))
    title = f"Scores of {', '.join(files[:4])}" + (" and others" if len(files) > 4 else "")
    notes = [f"Left out: {error}" for error in errors]
    results = [item.result for item in done]
    if kind is not None:
        write_file(out, kind, results, records, title=title, notes=notes)
        return (out,)
    written = write_report(results, records, out, title=title, notes=notes)
    pictures = (out / picture.file for picture in all_pictures())
    return (*filter(None, written), *(path for path in pictures if path.exists()))
