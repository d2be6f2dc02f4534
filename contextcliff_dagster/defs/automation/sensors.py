"""Pilot, then targeted, under the daemon: the next round of each model, until there is none."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of a
# sensor and does not resolve strings.

from collections.abc import Mapping
from typing import Any, cast

import dagster as dg

from contextcliff_dagster.defs.asset_specs import asset_key, group
from contextcliff_dagster.defs.campaign_runs.requests import Asked, Measurement
from contextcliff_dagster.defs.dagster_internals import NOT_FINISHED_STATUSES
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.study_run import campaign_of, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study

NEXT_ROUND = "next_round"
"""Metadata key of `cliffs`: model -> `sampling_rounds.Round` as JSON, with its sentence."""


def study_sensors(
    study: Study, job: "dg.UnresolvedAssetJobDefinition"
) -> list[dg.SensorDefinition]:
    """The sensor of a study with a section `targeted`. It runs once it is switched on: it costs."""
    plan = study.targeted
    if plan is None:
        return []

    @dg.sensor(
        name=f"target_{group(study)}",
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"A pilot of `{study.name}`, then rounds where a token is most informative.",
    )
    def target(context: dg.SensorEvaluationContext, store: StoreResource) -> Any:
        open_runs = dg.RunsFilter(job_name=job.name, statuses=list(NOT_FINISHED_STATUSES))
        if context.instance.get_runs(open_runs, limit=1):
            # What it brings decides what is asked next.
            return dg.SkipReason("A round is being measured.")
        event = context.instance.get_latest_materialization_event(asset_key(study, "cliffs"))
        made = event.asset_materialization if event else None
        with open_ledger(store.open()) as ledger:
            campaign = campaign_of(ledger, study)
        known = made.metadata if made else {}
        measurement = Measurement(study, LENGTH_PROFILE, campaign, "sensor")
        if NEXT_ROUND not in known or known["campaign"].value != campaign:
            pilot = {"samples_per_bin": plan.pilot, "why": "Pilot."}
            parts = measurement.everything(store.open(), f"{campaign}/pilot", pilot)
            return measurement.requests(parts)
        rounds = cast("Mapping[str, Mapping[str, Any]]", known[NEXT_ROUND].value)
        asked = {}
        for model in study.models:
            if model in rounds and rounds[model]["samples"]:
                of = rounds[model]
                config = {"samples": dict(of["samples"]), "why": of["why"]}
                tags = {"contextcliff/round": of["why"]}
                part = Asked([model], sorted(of["samples"]), config, tags)
                asked[f"{campaign}/{slug(model)}/{of['asked']}"] = part
        if asked:
            return measurement.requests(asked)
        return dg.SkipReason(" ".join(f"{m}: {of['why']}" for m, of in rounds.items()))

    return [target]
