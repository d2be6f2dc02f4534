"""`profile --sentinel`: a few examples at the cap, against the pinned baseline."""

from __future__ import annotations

from contextcliff_dagster.cli.commands.baseline import end_with
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.options import StudyOptions
from contextcliff_dagster.cli.progress import ProgressBar
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study


def watch_cap(
    study: Study,
    options: StudyOptions,
    usd: float | None,
    deadline: float | None,
    odd: bool,
    *,
    as_json: bool,
) -> None:
    """Run a sentinel of ``study``, print what it says, and tell the alerts where it fails.

    Args:
        usd: hard limit of this sentinel; the study's own when None.
        deadline: seconds after which it sends nothing more; the study's own when None.
        odd: an option was given that means nothing here.

    Raises:
        StudyError: see `run_sentinel`; ``odd``.
        click.exceptions.Exit: 3, a model has lost answers at its cap.
    """
    from contextcliff_dagster.defs.alerts import alert
    from contextcliff_dagster.experiments.length_profile.experiment import shrink_alarm
    from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
    from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after
    from contextcliff_dagster.inference.spending.budget import Budget

    if odd:
        raise StudyError(
            "--sentinel measures at once and in a campaign of its own, so --dry-run and --campaign "
            "do not apply; leave them out."
        )
    store = Store.default()
    asked = study.with_models(options.models) if options.models else study
    limit = usd if usd is not None else study.budget.usd
    with ProgressBar() as bar:
        found = run_sentinel(
            asked,
            store,
            RunControl(Budget(usd=limit), deadline_after(deadline), on_wait=say),
            per_bin=options.samples_per_bin,
            on_progress=bar,
        )
    alert(study, store, shrink_alarm(found), say)
    end_with(found, as_json=as_json)
