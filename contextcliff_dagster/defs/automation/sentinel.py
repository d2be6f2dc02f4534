"""The sentinel under Dagster: a job per study, and a schedule where the study has a `sentinel:`."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an op and a schedule and does not resolve strings.

import json
from typing import Any

import dagster as dg

from contextcliff_dagster.defs.alerts.channels import deliver
from contextcliff_dagster.defs.alerts.failed_runs import ALERTED_TAG
from contextcliff_dagster.defs.asset_specs import RETRY_FAILED, asset_key, group, run_tags
from contextcliff_dagster.defs.assets.refusals import refusing
from contextcliff_dagster.defs.automation.schedules import campaign_at
from contextcliff_dagster.defs.executors.device_tags import device_tags
from contextcliff_dagster.defs.resources import StoreResource, Watch
from contextcliff_dagster.defs.run_tags import complete_run_tags
from contextcliff_dagster.defs.ui.progress_log import StepProgress
from contextcliff_dagster.experiments.length_profile.experiment import shrink_alarm
from contextcliff_dagster.experiments.length_profile.sentinel import run_sentinel
from contextcliff_dagster.inference.execution.interrupts import RunControl, deadline_after
from contextcliff_dagster.inference.ledger.campaigns import SENTINEL
from contextcliff_dagster.inference.spending.budget import Budget
from contextcliff_dagster.studies import Study


class SentinelConfig(dg.Config):
    """What to ask; everything empty means as the study says."""

    examples: int | None = None
    """Of the bin that holds the cap."""
    campaign: str | None = None
    """A sentinel that was begun (`sentinel-...`), to go on with; a new one when empty."""
    budget_usd: float | None = None
    """Hard limit of this sentinel in USD; the study's own when empty."""
    deadline_s: float | None = None
    """Seconds after which nothing more is sent; the study's own when empty."""


def sentinel_job(study: Study) -> dg.JobDefinition:
    """`sentinel_<study>`: a few examples at the cap; the run fails where answers are lost."""

    @dg.op(name=f"{group(study)}__sentinel", tags=device_tags(study))
    @refusing
    def sentinel(
        context: dg.OpExecutionContext,
        config: SentinelConfig,
        store: StoreResource,
        watch: dg.ResourceParam[Watch],
    ) -> None:
        where = store.open()
        progress = StepProgress(lambda text, _: context.log.info(text), watch.on_progress)
        listeners = {model: progress.of(model) for model in study.models}
        outcome = run_sentinel(
            study,
            where,
            RunControl(
                Budget(usd=study.budget.usd if config.budget_usd is None else config.budget_usd),
                deadline_after(config.deadline_s),
                on_wait=context.log.info,
            ),
            per_bin=config.examples,
            campaign=config.campaign,
            on_progress=lambda model, progress: listeners[model](progress),
        )
        complete_run_tags(context, study, outcome.campaign)
        alarm = shrink_alarm(outcome)
        if alarm is not None:
            delivery = deliver(study, where, alarm, context.log.warning)
            for channel in delivery.taken:
                context.log.info(f"Alert sent to {channel}.")
            if delivery.told:  # the others hear of it from `alert_failed_runs`, which tries again
                told = json.dumps(delivery.told)
                context.instance.add_run_tags(context.run_id, {ALERTED_TAG: told})
        shown: dict[str, Any] = {
            "sentinel": outcome.sentence,
            "campaign": outcome.campaign,
            "baseline": outcome.baseline,
            "shrunk": ", ".join(outcome.shrunk) or "none",
        }
        # Next to the caps that it watches: a run without an asset goes unseen.
        context.log_event(dg.AssetObservation(asset_key(study, "cliffs"), metadata=shown))
        if outcome.shrunk or outcome.unjudged:
            raise dg.Failure(outcome.sentence, metadata=shown, allow_retries=False)

    @dg.job(
        name=f"sentinel_{group(study)}",
        description=(
            f"A few examples at the caps of `{study.name}`, asked again and compared with the "
            "pinned baseline; fails where answers are lost, or too few came to judge."
        ),
        tags={"contextcliff/study": study.name, **RETRY_FAILED},
    )
    def job() -> None:
        sentinel()

    return job


def sentinel_schedules(study: Study, job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """The schedule of the study's sentinel, if it has one; off until switched on: it costs."""
    plan = study.sentinel
    if plan is None:
        return []

    @dg.schedule(
        name=f"watch_{group(study)}",
        job=job,
        cron_schedule=plan.cron,
        execution_timezone=plan.timezone,
        description=f"A sentinel of `{study.name}`: {plan.cron} {plan.timezone}.",
    )
    def watch(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        # Begun by the run, not here; a run that is tried again goes on with it and pays once.
        campaign = f"{SENTINEL}{campaign_at(context.scheduled_execution_time)}"
        return dg.RunRequest(
            run_key=campaign,
            run_config={"ops": {f"{group(study)}__sentinel": {"config": {"campaign": campaign}}}},
            tags=run_tags(study, campaign, "schedule"),
        )

    return [watch]
