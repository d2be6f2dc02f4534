"""`calibrate`: simulated error rates of a design, before any money is spent."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.display.output import ProgressBar, duration, print_json, print_table
from contextcliff_dagster.cli.options import (
    Finite,
    common_options,
    count_option,
    share_option,
    together,
)
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study


_WORTH_A_PROCESS = 10
"""Number of simulations from which another process pays off."""


def _questions(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Parse a number or a range of questions, ``4`` or ``1-8``."""
    if value is None:
        return None
    low, _, high = value.partition("-")
    try:
        least, most = int(low), int(high or low)
    except ValueError:
        least = most = 0
    if not 1 <= least <= most <= 1_000:
        raise click.BadParameter(f"{value!r} is not a question count; use 4 or 1-8", ctx, param)
    return least, most


_design = together(
    click.argument("study", required=False),
    count_option("--per-bin", 1, 10_000, "Examples per length bin."),
    count_option("--bins", 1, 100, "Length bins.", metavar="B"),
    click.option(
        "--questions",
        callback=_questions,
        metavar="N|N-M",
        help="Questions per document, e.g. 4 or 1-8.",
    ),
    click.option(
        "--score", type=click.Choice(["binary", "graded"]), help="Scores: 0 or 1, or any between."
    ),
    click.option(
        "--correlation",
        type=Finite(0, 0.95),
        metavar="R",
        help="Correlation of two questions on one document (default: the pilot's, else .15).",
    ),
    click.option(
        "--baseline",
        type=Finite(0.1, 0.99),
        metavar="M",
        help="Mean score of short documents (default: the pilot's, else .55).",
    ),
)
_how = together(
    count_option(
        *("--simulations", 20, 1_000_000, "Total number of simulated samples."),
        default=500,
        show_default=True,
    ),
    share_option(
        "--tolerance",
        "Drop that still counts as safe, e.g. .2 or 20% (default: the study's, else .3).",
    ),
    share_option(
        "--confidence", "Confidence of the cap and every interval (default: the study's, else .95)."
    ),
    share_option(
        "--chance",
        "Mean score of guessing, e.g. .25 of four options (default: the study's, else 0).",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seed of the simulation."
    ),
    count_option(
        "--jobs", 1, 256, "Processes (default: one per core); the result does not depend on it."
    ),
)


@click.command()
@_design
@_how
@common_options
def calibrate(
    study: str | None,
    per_bin: int | None,
    bins: int | None,
    questions: tuple[int, int] | None,
    score: str | None,
    correlation: float | None,
    baseline: float | None,
    simulations: int,
    tolerance: float | None,
    confidence: float | None,
    chance: float | None,
    seed: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Simulate a design on known curves to estimate false alarms, unsafe caps and power.

    With STUDY, simulates its frozen sample, estimates scores from its records if there are any,
    and keeps the result for its report. Makes no call.
    """
    from contextcliff_dagster.analysis.design.error_rates import calibrate as simulate
    from contextcliff_dagster.experiments.length_profile.simulated_design import (
        DesignOverrides,
        as_result,
        keep,
        plain_plan,
        study_plan,
    )
    from contextcliff_dagster.studies import find_study

    binary = None if score is None else score == "binary"
    overrides = DesignOverrides(per_bin, bins, questions, binary, correlation, baseline)
    store = Store.default()
    chosen = None if study is None else find_study(study)
    settings = _settings(chosen, tolerance=tolerance, confidence=confidence, chance=chance)
    basis = plain_plan(overrides) if chosen is None else study_plan(chosen, store, overrides)
    start = time.monotonic()
    with ProgressBar(transient=True) as bar:
        rates = simulate(
            basis.plan,
            settings,
            simulations=simulations,
            seed=seed,
            jobs=jobs or min(os.cpu_count() or 1, simulations // _WORTH_A_PROCESS),
            on_progress=partial(bar.show, "simulations"),
        )
    took = time.monotonic() - start
    result = as_result(basis, rates, settings, None if chosen is None else chosen.name)
    kept = None
    if chosen is not None and basis.own and settings == _settings(chosen):
        kept = keep(store, chosen, result)
    if as_json:
        print_json({**result, "kept": None if kept is None else str(kept)})
        return
    _print(result, took)
    if chosen is None:
        return
    if kept is None:
        click.echo(f"Not kept: study {chosen.name} has another design; change its file to use it.")
    elif basis.frozen:
        click.echo(f"Kept: {kept}; the report of study {chosen.name} quotes it.")
    else:
        click.echo(
            f"Kept: {kept}. The report quotes only simulations of the study's own sample: "
            f"run `contextcliff prepare {chosen.name}`, then this command again."
        )


def _settings(study: Study | None, **given: float | None) -> AnalysisSettings:
    """Return the study's settings, or the defaults, updated by those ``given`` (not None)."""
    settings = AnalysisSettings() if study is None else study.analysis_settings()
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(settings, **changes)


def _print(result: dict[str, Any], took: float) -> None:
    from contextcliff_dagster.reporting.design_error_rates import (
        TABLE_COLUMNS,
        conclusion,
        design_words,
        table_rows,
    )

    design = result["design"]
    documents = f" on {design['documents']:,} documents" if "documents" in design else ""
    click.echo(
        f"Design: {design_words(result)}; {design['examples']:,} examples{documents}; tolerance "
        f"{result['tolerance']:.0%}, confidence {result['confidence']:.0%}"
        + (f", guessing scores {result['chance']:.2f}" if result["chance"] else "")
    )
    for name, source in result["sources"].items():
        click.echo(f"  {name}: {source}")
    click.echo()
    print_table(TABLE_COLUMNS, table_rows(result))
    click.echo(
        f"\n{conclusion(result)}\n{result['simulations']:,} simulations, {duration(took)}; "
        "brackets are 95% limits of the simulation error; caps are medians and quartiles."
    )
