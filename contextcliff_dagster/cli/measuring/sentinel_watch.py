"""`profile --sentinel`: a few examples at the cap, against the pinned baseline."""

from __future__ import annotations

from contextcliff_dagster.cli.commands.baseline import end_with
from contextcliff_dagster.cli.display.progress import ProgressBar
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study


def watch_cap(
    study: Study,
    options: StudyOptions,
    usd: float | None,
    deadline: float | None,
    *,
    as_json: bool,
) -> None:
    """Run a sentinel of ``study``, print its result, and alert where it fails.

    Args:
        usd: hard limit of this sentinel; the study's own when None.
        deadline: seconds after which it sends nothing more; the study's own when None.

    Raises:
        StudyError: see `run_sentinel`.
        click.exceptions.Exit: 3, a model has lost answers at its cap.
    """
    from contextcliff_dagster.defs.alerts.channels import alert
    from contextcliff_dagster.experiments.length_profile.experiment import shrink_alarm
    from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
    from contextcliff_dagster.inference.execution.interrupts import RunControl, deadline_after
    from contextcliff_dagster.inference.spending.budget import Budget

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
