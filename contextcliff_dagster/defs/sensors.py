"""Pilot, then targeted, under the daemon: the next round of each model, until there is none."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# sensor and does not resolve strings.

from collections.abc import Mapping
from typing import Any, cast

import dagster as dg

from contextcliff_dagster.defs.asset_specs import asset_key, group, run_tags
from contextcliff_dagster.defs.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    NOT_FINISHED_STATUSES,
)
from contextcliff_dagster.defs.partitions import partition_key, range_tags
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.defs.schedules import dated_config
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

NEXT_ROUND = "next_round"
"""Metadata key of `cliffs`: model -> `sampling_rounds.Round` as JSON, with its sentence."""
_SECONDS = 30


def study_sensors(
    study: Study, job: "dg.UnresolvedAssetJobDefinition"
) -> list[dg.SensorDefinition]:
    """The sensor of a study with a section `targeted`. It runs once it is switched on: it costs."""
    if study.targeted is None:
        return []

    @dg.sensor(
        name=f"target_{group(study)}",
        job=job,
        minimum_interval_seconds=_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"A pilot of `{study.name}`, then rounds where a token tells most.",
    )
    def target(context: dg.SensorEvaluationContext, store: StoreResource) -> Any:
        from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger

        open_runs = dg.RunsFilter(job_name=job.name, statuses=list(NOT_FINISHED_STATUSES))
        if context.instance.get_runs(open_runs, limit=1):
            # What it brings decides what is asked next.
            return dg.SkipReason("A round is being measured.")
        event = context.instance.get_latest_materialization_event(asset_key(study, "cliffs"))
        found = event.asset_materialization if event else None
        with open_ledger(store.open()) as ledger:
            campaign = campaign_of(ledger, study)
        known = found.metadata if found else {}
        if NEXT_ROUND not in known or known["campaign"].value != campaign:
            return pilot_request(study, campaign)
        rounds = cast("Mapping[str, Mapping[str, Any]]", known[NEXT_ROUND].value)
        requests = [
            round_request(study, campaign, model, rounds[model])
            for model in study.models
            if model in rounds and rounds[model]["samples"]
        ]
        if requests:
            return requests
        return dg.SkipReason(" ".join(f"{m}: {of['why']}" for m, of in rounds.items()))

    return [target]


def pilot_request(study: Study, campaign: str) -> dg.RunRequest:
    """The run that measures the first examples of every bin, of all models; once a campaign."""
    assert study.targeted is not None
    first = {"campaign": campaign, "samples_per_bin": study.targeted.pilot, "why": "Pilot."}
    config = dated_config(study, LENGTH_PROFILE, campaign)
    config["ops"][f"{group(study)}__predictions"] = {"config": first}
    return dg.RunRequest(
        run_key=f"{campaign}/pilot",
        run_config=config,
        tags={**range_tags(study, LENGTH_PROFILE), **run_tags(study, campaign, "sensor")},
    )


def round_request(
    study: Study, campaign: str, model: str, plan: Mapping[str, Any]
) -> dg.RunRequest:
    """The run that measures one round of one model; the same state of knowledge asks only once."""
    bins = sorted(plan["samples"])
    config = dated_config(study, LENGTH_PROFILE, campaign)
    config["ops"][f"{group(study)}__predictions"] = {
        "config": {"campaign": campaign, "samples": dict(plan["samples"]), "why": plan["why"]}
    }
    return dg.RunRequest(
        run_key=f"{campaign}/{slug(model)}/{plan['asked']}",
        run_config=config,
        # Plain strings: a MultiPartitionKey as tag value would tag the run with one partition.
        tags={
            ASSET_PARTITION_RANGE_START_TAG: str(partition_key(LENGTH_PROFILE, model, bins[0])),
            ASSET_PARTITION_RANGE_END_TAG: str(partition_key(LENGTH_PROFILE, model, bins[-1])),
            **run_tags(study.with_models([model]), campaign, "sensor"),
            "contextcliff/round": plan["why"],
        },
    )
