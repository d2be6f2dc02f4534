"""The runs of one campaign: the measuring runs and the reporting run."""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of
# sensors, and does not resolve strings.

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.alerts import is_elsewhere
from contextcliff_dagster.defs.asset_specs import (
    RETRY_FAILED,
    asset_key,
    report_job_name,
    run_config,
    run_tags,
)
from contextcliff_dagster.defs.dagster_internals import (
    BACKFILL_ID_TAG,
    BULK_ACTION_TERMINAL_STATUSES,
)
from contextcliff_dagster.defs.home import PLACE_TAG
from contextcliff_dagster.defs.partitions import campaign_partitions, is_retried, range_tags
from contextcliff_dagster.defs.places import model_groups, place_of
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.experiments.lookup import judged_assets, measuring_assets, partitioned
from contextcliff_dagster.inference.ledger.batches import CallBatch, batches_of
from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, list_campaigns
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study


@dataclass(frozen=True)
class Asked:
    """The models that a run measures, which are adjacent in the study's order, and their cells.

    ``config``: config of the predictions (``for_guests``: also of the guests' predictions);
    ``tags``: further tags of the run.
    """

    models: Sequence[str]
    cells: Sequence[str]
    config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None
    for_guests: bool = False


@dataclass(frozen=True)
class Measurement:
    """One experiment of a study in one campaign, and its trigger (schedule, sensor)."""

    study: Study
    experiment: Experiment
    campaign: str
    cause: str

    def everything(
        self, store: Store, key: str, config: Mapping[str, Any] | None = None
    ) -> list[dg.RunRequest]:
        """Return one request per group of models, their keys from ``key``.

        If the sample is not drawn yet, there is only one request, or each run would draw it.
        """
        cells = self.experiment.cells(self.study)
        groups = model_groups(self.study)
        prepared = self._is_prepared(store)
        if len(groups) == 1 or not prepared:
            every = Asked(self.study.models, cells, config)
            return [self.request(key, every, prepare=not prepared)]
        return [
            self.request(f"{key}/{slug(models[0])}", Asked(models, cells, config))
            for models in groups
        ]

    def request(self, key: str, part: Asked, *, prepare: bool = False) -> dg.RunRequest:
        """Return the request of a run that measures; `report_sensor` reports once all are over.

        ``prepare``: whether the run also draws the sample.
        """
        study, experiment = self.study, self.experiment
        asking = measuring_assets(study, experiment)
        tags = {
            **range_tags(study, experiment, self.campaign, part.models, part.cells),
            **run_tags(study.with_models(part.models), self.campaign, self.cause),
            **(part.tags or {}),
        }
        if len(places := {place_of(model) for model in part.models}) == 1:
            tags[PLACE_TAG] = places.pop()
        named = asking if part.for_guests else asking[:1]
        return dg.RunRequest(
            run_key=key,
            run_config=run_config(study, {name: part.config for name in named if part.config}),
            tags=tags,
            asset_selection=None if prepare else [asset_key(study, name) for name in asking],
        )

    def _is_prepared(self, store: Store) -> bool:
        """Return whether the sample and the documents for the calls exist."""
        from contextcliff_dagster.experiments.common.preparation import find_frozen

        documents = self.experiment.documents
        with suppress(ContextCliffError):  # the run will say so itself
            sampled = not self.study.has_corpus or find_frozen(self.study, store) is not None
            return sampled and (not documents or documents.frozen(self.study, store) is not None)
        return False


def report_job(study: Study, *more: dg.AssetKey) -> "dg.UnresolvedAssetJobDefinition":
    """Return `report_<study>`, which scores and reports a campaign without any calls, and makes the
    assets ``more`` that follow from it."""
    names = [*(name for e in partitioned(study) for name in judged_assets(e)), "report"]
    names.append("cost_estimate")
    return dg.define_asset_job(
        report_job_name(study),
        dg.AssetSelection.assets(*(asset_key(study, name) for name in names), *more),
        tags={"contextcliff/study": study.name, **RETRY_FAILED},
        description=f"Scores, results and report of `{study.name}` as measured so far; no call.",
    )


def report_sensor(
    studies: Sequence[Study],
    jobs: Sequence["dg.UnresolvedAssetJobDefinition"],
    *more: dg.AssetKey,
) -> dg.SensorDefinition:
    """Return `report_when_measured`, which starts the report of each campaign with measurements
    that no report covers, however they were started, once all its runs are over.

    The sensor waits while Dagster retries failed runs; the report names what they did not measure.
    It compares what is recorded, so that nothing measured while it was off is missed. A measurement
    must be its campaign's newest on two ticks, because a command reports its own. The cursor holds
    each study's newest measurement, and those of its campaigns that wait. The sensor also keeps the
    partition keys of the campaigns (`keep_campaigns`). ``jobs``: of `report_job`, with ``more``.
    """

    @dg.sensor(
        name="report_when_measured",
        jobs=jobs,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Scores and reports a campaign once the runs that measure it are over.",
    )
    def report_when_measured(
        context: dg.SensorEvaluationContext, contextcliff_store: StoreResource
    ) -> Any:
        instance, store = context.instance, contextcliff_store.open()
        keep_campaigns(instance, store, studies)
        waiting = {(batch.study, batch.campaign) for batch in open_batches(store)}
        known: dict[str, list[Any]] = json.loads(context.cursor) if context.cursor else {}
        requests = []
        for study, newest in _newest_measurements(instance, studies):
            seen, waited = known.get(study.name) or [None, {}]
            if seen == newest and not waited:
                continue
            waits: dict[str, int] = {}
            for campaign, measured in _unreported(instance, study).items():
                runs = _runs_of(instance, study, campaign)
                if any(is_elsewhere(context, run) for run in runs):
                    continue
                at = max(measured.values())
                if (study.name, campaign) in waiting:
                    waits[campaign] = at
                elif waited.get(campaign) == at and all(_is_over(instance, r, runs) for r in runs):
                    requests.append(_request(study, campaign, measured, more))
                else:
                    waits[campaign] = at
            known[study.name] = [newest, waits]
        context.update_cursor(json.dumps(known))
        return requests or dg.SkipReason("No campaign has been measured since the last look.")

    return report_when_measured


def open_batches(store: Store, study: str | None = None) -> list[CallBatch]:
    """Return the batches in the store's ledger that have not ended, oldest first."""
    if not store.has_ledger:
        return []
    with open_ledger(store) as ledger:
        return batches_of(ledger, is_open=True, study=study)


def keep_campaigns(instance: dg.DagsterInstance, store: Store, studies: Sequence[Study]) -> None:
    """Make the newest campaigns of the call ledger partition keys, and older ones no longer.

    Those of another instance, an import or a shared ledger come in here. As many of those that no
    call has begun yet stay keys. Sentinels are never keys.
    """
    if not store.has_ledger:
        return
    begun: dict[str, list[str]] = {}
    with open_ledger(store) as ledger:
        for campaign in list_campaigns(ledger):
            if not campaign.name.startswith(SENTINEL):
                begun.setdefault(campaign.study, []).append(campaign.name)
    for study in studies:
        names, most = begun.get(study.name, []), study.assets.campaigns
        partitions = str(campaign_partitions(study).name)
        known = instance.get_dynamic_partitions(partitions)
        if new := [name for name in names[-most:] if name not in known]:
            instance.add_dynamic_partitions(partitions, new)
        unbegun = [name for name in known if name not in names]
        for old in {*names[:-most], *unbegun[:-most]}.intersection(known):
            instance.delete_dynamic_partition(partitions, old)


def _newest_measurements(
    instance: dg.DagsterInstance, studies: Sequence[Study]
) -> Iterator[tuple[Study, int]]:
    """Yield each study that was measured, with the storage id of its newest materialization."""
    owner = {
        asset_key(study, name): study
        for study in studies
        for experiment in partitioned(study)
        for name in measuring_assets(study, experiment)
    }
    newest: dict[str, int] = {}
    for record in instance.get_asset_records(list(owner)):
        entry = record.asset_entry
        if (made := entry.last_materialization_storage_id) is not None:
            name = owner[entry.asset_key].name
            newest[name] = max(made, newest.get(name, 0))
    return ((study, newest[study.name]) for study in studies if study.name in newest)


def _unreported(instance: dg.DagsterInstance, study: Study) -> dict[str, dict[str, int]]:
    """Return campaign -> experiment -> newest storage id, for campaigns measured since the run of
    their last report was created."""
    campaigns = set(instance.get_dynamic_partitions(str(campaign_partitions(study).name)))
    measured: dict[str, dict[str, int]] = {}
    for experiment in partitioned(study):
        for name in measuring_assets(study, experiment):
            made = instance.event_log_storage.get_latest_storage_id_by_partition(
                asset_key(study, name), dg.DagsterEventType.ASSET_MATERIALIZATION
            )
            for key, storage_id in made.items():
                campaign = key.partition("|")[0]
                if campaign in campaigns:
                    of = measured.setdefault(campaign, {})
                    of[experiment.name] = max(storage_id, of.get(experiment.name, 0))
    report = asset_key(study, "report")

    def is_reported(campaign: str, newest: int) -> bool:
        planned = instance.event_log_storage.get_latest_planned_materialization_info(
            report, campaign
        )
        return planned is not None and planned.storage_id > newest

    return {name: of for name, of in measured.items() if not is_reported(name, max(of.values()))}


def _runs_of(instance: dg.DagsterInstance, study: Study, campaign: str) -> list[dg.DagsterRun]:
    """Return the campaign's runs, newest first, plus all runs of their backfills."""
    of = {"contextcliff/study": study.name, "contextcliff/campaign": campaign}
    runs = {run.run_id: run for run in instance.get_runs(dg.RunsFilter(tags=of))}
    backfills = {run.tags[BACKFILL_ID_TAG] for run in runs.values() if BACKFILL_ID_TAG in run.tags}
    if backfills:
        # One that has not begun does not say its campaign yet.
        queued = dg.RunsFilter(tags={BACKFILL_ID_TAG: list(backfills)})
        runs |= {run.run_id: run for run in instance.get_runs(queued)}
    return list(runs.values())


def _is_over(
    instance: dg.DagsterInstance, run: dg.DagsterRun, runs: Sequence[dg.DagsterRun]
) -> bool:
    """Return whether the run, its retries and its backfill have ended."""
    if not run.is_finished:
        return False
    backfill = instance.get_backfill(run.tags.get(BACKFILL_ID_TAG, ""))
    ended = backfill is None or backfill.status in BULK_ACTION_TERMINAL_STATUSES
    # Runs of an ended backfill are not retried, whatever their tags say.
    is_asked = BACKFILL_ID_TAG not in run.tags or not ended
    if run.status is dg.DagsterRunStatus.FAILURE and is_asked and is_retried(instance, run):
        return any(other.parent_run_id == run.run_id for other in runs)
    return ended


def _request(
    study: Study, campaign: str, measured: Mapping[str, int], more: Sequence[dg.AssetKey]
) -> dg.RunRequest:
    """Return the request of the reporting run; its key prevents a second report of the same."""
    names = [name for e in partitioned(study) if e.name in measured for name in judged_assets(e)]
    names += ["report", "cost_estimate"]
    return dg.RunRequest(
        run_key=f"{study.name}/{campaign}/{max(measured.values())}",
        job_name=report_job_name(study),
        partition_key=campaign,
        run_config=run_config(study, {"cost_estimate": {"campaign": campaign}}),
        tags=run_tags(study, campaign, "sensor"),
        asset_selection=[*(asset_key(study, name) for name in names), *more],
    )
