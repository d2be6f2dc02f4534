"""`profile --pilot N --until W%`: rounds that are printed with why, until enough is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.cli.errors import say

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.sampling_rounds import Target
    from contextcliff_dagster.cli.options import StudyOptions
    from contextcliff_dagster.defs.in_process import LocalRuns
    from contextcliff_dagster.defs.resources import Watch
    from contextcliff_dagster.defs.run import Prepared, Profiled
    from contextcliff_dagster.studies import Study

_CANDIDATES = 20
"""Times the pilot: what a bin may give in the end, where nobody says otherwise."""


def target_of(study: Study, pilot: int | None, until: float | None, batch: int | None) -> Target:
    """What the options ask for; what they leave open is the study's, else 5, 5% and 20."""
    from contextcliff_dagster.analysis.design.sampling_rounds import Target

    own = study.target_of_rounds()
    return Target(
        own.pilot if pilot is None else pilot,
        own.half_width if until is None else until,
        own.batch if batch is None else batch,
    )


def candidates(study: Study, options: StudyOptions, target: Target) -> int:
    """Examples a bin may give: as asked, as a study made for rounds says, else 20 pilots."""
    if options.samples_per_bin is not None:
        return options.samples_per_bin
    own = study.sampling.samples_per_bin
    return own if study.targeted is not None else max(own, _CANDIDATES * target.pilot)


def say_most(prepared: Prepared) -> None:
    """What it comes to at the most: the cost that is agreed on is that of all candidates."""
    if prepared.estimate.calls:
        most = prepared.study.sampling.samples_per_bin
        say(
            f"Note: at most {prepared.estimate.calls:,} calls, {most:,} examples a bin; sampling "
            "ends as soon as the drop is located or excluded."
        )


def measure_in_rounds(runs: LocalRuns, target: Target, watch: Watch) -> Profiled:
    """Measure, and say of each round why it is asked, and where it ended early.

    Raises:
        BudgetError: not even the pilot could be paid.
    """
    from contextcliff_dagster.defs.adaptive_run import profile_targeted

    done = profile_targeted(runs, target, watch, on_round=say)
    if done.stopped:
        say(f"Note: ended early: {done.stopped}")
    return done.profiled
