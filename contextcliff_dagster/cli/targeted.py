"""`profile --pilot N --until W%`: rounds that are printed with why, until enough is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.cli.faults import say

if TYPE_CHECKING:
    import dagster as dg

    from contextcliff_dagster.analysis.rounds import Target
    from contextcliff_dagster.cli.options import Wanted
    from contextcliff_dagster.defs.run import Prepared
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_CANDIDATES = 20
"""Times the pilot: what a bin may give in the end, where nobody says otherwise."""


def target_of(study: Study, pilot: int | None, until: float | None, batch: int | None) -> Target:
    """What the options ask for; what they leave open is the study's, else 5, 5% and 20."""
    from contextcliff_dagster.analysis.rounds import Target

    own = study.target_of_rounds()
    return Target(
        own.pilot if pilot is None else pilot,
        own.half_width if until is None else until,
        own.batch if batch is None else batch,
    )


def candidates(study: Study, wanted: Wanted, target: Target) -> int:
    """Examples a bin may give: as asked, as a study made for rounds says, else 20 pilots."""
    if wanted.samples_per_bin is not None:
        return wanted.samples_per_bin
    own = study.sampling.samples_per_bin
    return own if study.targeted is not None else max(own, _CANDIDATES * target.pilot)


def measure_in_rounds(
    prepared: Prepared,
    target: Target,
    store: Store,
    instance: dg.DagsterInstance | None,
    campaign: str | None,
    limit: float | None,
    deadline: float | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Agree on the most it can cost, measure, and print each round and the report.

    Raises:
        BudgetError: not confirmed, or not even the pilot could be paid.
    """
    from contextcliff_dagster.cli.measure import agree_on_cost, interruption_says
    from contextcliff_dagster.cli.progress import ProgressBar
    from contextcliff_dagster.cli.results import print_profiled
    from contextcliff_dagster.defs.targeted import profile_targeted
    from contextcliff_dagster.inference.budget import Budget

    study = prepared.study
    if prepared.estimate.calls:
        say(
            f"Note: at most {prepared.estimate.calls:,} calls, {study.sampling.samples_per_bin:,} "
            "examples a bin; asking ends as soon as the loss is located or excluded."
        )
    agree_on_cost(prepared, study, limit, yes=yes)
    with ProgressBar() as bar, interruption_says(store, study, campaign):
        done = profile_targeted(
            study,
            target,
            store=store,
            campaign=campaign,
            budget=Budget(usd=limit),
            deadline_s=deadline,
            on_round=say,
            on_progress=bar,
            on_wait=say,
            instance=instance,
        )
    if done.stopped:
        say(f"Note: ended early: {done.stopped}")
    print_profiled(done.profiled, as_json=as_json)
