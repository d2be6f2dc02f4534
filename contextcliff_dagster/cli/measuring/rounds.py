"""Measurement in rounds, and the sentinel that watches a cap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.commands.baseline import end_with
from contextcliff_dagster.cli.display.output import ProgressBar
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import MOST_SAMPLES, StudyOptions, count_option, together
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.allocation import Target
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.run.study import LocalRuns, Profiled


def watch_cap(
    study: Study,
    options: StudyOptions,
    usd: float | None,
    deadline: float | None,
    *,
    as_json: bool,
) -> None:
    """Run a sentinel of ``study``, print its result, and send an alert if it fails.

    Args:
        usd: hard limit of this sentinel; None for the study's.
        deadline: seconds after which no more calls are sent; None for the study's.

    Raises:
        StudyError: see `run_sentinel`.
        click.exceptions.Exit: 3 if a model's score at its cap has declined.
    """
    from contextcliff_dagster.defs.alerts import alert
    from contextcliff_dagster.experiments.length_profile.experiment import shrink_alarm
    from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
    from contextcliff_dagster.inference.execution.measure import RunControl, deadline_after

    store = Store.default()
    budget = Budget(usd=study.budget.usd if usd is None else usd)
    with ProgressBar() as bar:
        result = run_sentinel(
            study.with_models(options.models) if options.models else study,
            store,
            RunControl(budget, deadline_after(deadline), on_wait=say),
            per_bin=options.samples_per_bin,
            on_progress=bar,
        )
    alert(study, store, shrink_alarm(result), say)
    end_with(result, as_json=as_json)


_CANDIDATES = 20
"""Default maximum of examples per bin, as a multiple of the pilot."""


def _half_width(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse the percentage ``5%`` or ``5`` to a share."""
    if value is None:
        return None
    try:
        share = float(value.strip().removesuffix("%")) / 100.0
    except ValueError:
        problem = f"{value!r} is not a percentage; use e.g. 5%."
        raise click.BadParameter(problem, ctx, param) from None
    if not 0.01 <= share <= 0.25:
        raise click.BadParameter(f"{value} is not between 1% and 25%.", ctx, param)
    return share


targeted_options = together(
    count_option(
        "--pilot",
        1,
        MOST_SAMPLES,
        "Measure N examples per bin, then more only where they best locate the drop.",
    ),
    click.option(
        "--until",
        callback=_half_width,
        metavar="W%",
        help="Stop when the drop is located to ± W% of the lengths (default with --pilot: 5%).",
    ),
    count_option(
        "--round",
        1,
        MOST_SAMPLES,
        "Examples per round after the pilot (default: 20).",
        into="batch",
    ),
)


def rounds_of(
    study: Study, options: StudyOptions, pilot: int | None, until: float | None, batch: int | None
) -> tuple[Target, StudyOptions]:
    """Return the target of the rounds, and the options with the maximum of examples per bin.

    Options override the study, which overrides the defaults: 5, 5%, 20, and 20 times the pilot.
    """
    from contextcliff_dagster.analysis.design.allocation import Target

    defaults, size = study.target_of_rounds(), options.samples_per_bin
    target = Target(
        defaults.pilot if pilot is None else pilot,
        defaults.half_width if until is None else until,
        defaults.batch if batch is None else batch,
    )
    if size is None:
        size = study.sampling.samples_per_bin
        size = size if study.targeted is not None else max(size, _CANDIDATES * target.pilot)
    return target, replace(options, samples_per_bin=size)


def measure_in_rounds(runs: LocalRuns, target: Target, watch: Watch) -> Profiled:
    """Measure in rounds, printing the reason for each round and for an early end.

    Raises:
        BudgetError: the budget does not cover the pilot.
    """
    from contextcliff_dagster.run.adaptive import profile_targeted

    done = profile_targeted(runs, target, watch, on_round=say)
    if done.stopped:
        say(f"Note: ended early: {done.stopped}")
    return done.profiled
