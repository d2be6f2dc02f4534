"""Materializing assets of a study in this process, under the names that the UI knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ContextCliffError, EngineError
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import document_assets_of, ops_of, partitioned
from contextcliff_dagster.private_files import make_folder
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import study_used

if TYPE_CHECKING:
    import dagster as dg

    from contextcliff_dagster.defs.asset_specs import Config
    from contextcliff_dagster.defs.resources import Watch


@dataclass(frozen=True)
class LocalRuns:
    """Where the assets of a study are materialized in this process.

    ``instance``: where the runs are recorded; ``DAGSTER_HOME``'s when None, else nowhere.
    ``cause``: what started them, a tag of each run. ``with_answers``: questions and answers go into
    the report.
    """

    study: Study
    store: Store
    campaign: str
    instance: dg.DagsterInstance | None = None
    cause: str = "python"
    with_answers: bool = False

    @classmethod
    def of(
        cls,
        study: Study,
        store: Store,
        campaign: str | None = None,
        instance: dg.DagsterInstance | None = None,
        cause: str = "python",
        with_answers: bool = False,
    ) -> LocalRuns:
        """Return those of ``campaign``, the study's current one when None.

        Raises:
            StudyError: there is no such campaign.
        """
        with StudyRun.open(study, store, campaign) as run:
            return cls(study, store, run.campaign, instance, cause, with_answers)

    def materialize(
        self,
        experiment: Experiment | None,
        names: Sequence[str],
        config: Config | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Materialize the named assets of the campaign in one run; their errors come through.

        ``experiment``: whose partitions the run is about (those of its documents where they are
        named); None where none of the assets has any. ``config``: what ops are given besides the
        campaign.

        Raises:
            ContextCliffError: an asset failed, or a check that blocks what comes after it.
        """
        import dagster as dg

        from contextcliff_dagster.defs.asset_specs import (
            PREPARATION,
            asset_key,
            documents_job_name,
            job_name,
            run_config,
            run_tags,
        )
        from contextcliff_dagster.defs.assets.refusals import refusals_raised
        from contextcliff_dagster.defs.dagster_internals import (
            DagsterAssetCheckFailedError,
            output_to_terminal,
        )
        from contextcliff_dagster.defs.partitions import document_range_tags, range_tags
        from contextcliff_dagster.defs.resources import StoreResource, Watch
        from contextcliff_dagster.defs.studies import study_assets

        study, instance = self.study, self.instance
        if instance is None and os.environ.get("DAGSTER_HOME"):
            instance = dg.DagsterInstance.get()
        # Each is a job of the code location, whose page shows the run.
        job, partitions = job_name(study, partitioned(study)[0]), {}
        if experiment is not None and {*names} & {*experiment.document_assets()[:1]}:
            job = documents_job_name(study, experiment)
            partitions = document_range_tags(study, experiment)
        elif experiment is not None:
            job, partitions = job_name(study, experiment), range_tags(study, experiment)
        selection = dg.AssetSelection.assets(*(asset_key(study, name) for name in names))
        store = StoreResource(root=str(self.store.root))
        definitions = dg.Definitions(
            assets=study_assets(study),
            jobs=[dg.define_asset_job(job, selection)],
            resources={"store": store, "watch": watch or Watch()},
        )
        tags = run_tags(study, self.campaign, self.cause) | partitions
        undated = {*PREPARATION, *document_assets_of(study)}
        dated = ops_of(experiment, [name for name in names if name not in undated])
        more = dict(config or {})
        if self.with_answers and "report" in names:
            more["report"] = {"with_answers": True}
        settings = run_config(study, self.campaign, dated, more)
        # The terminal belongs to the caller: Dagster's own lines go to its event log only.
        level = "DEBUG" if os.environ.get("CONTEXTCLIFF_VERBOSE") else "CRITICAL"
        settings["loggers"] = {"console": {"config": {"log_level": level}}}
        with suppress(OSError):  # what cannot be written says so itself
            make_folder(self.store.root)
        try:
            with (
                study_used(self.store, study.name),
                output_to_terminal(),
                refusals_raised(),
            ):
                definitions.resolve_job_def(job).execute_in_process(
                    instance=instance, tags=tags, run_config=settings
                )
        except DagsterAssetCheckFailedError as error:
            raise self._refusal(experiment, error) from error

    def _refusal(self, experiment: Experiment | None, error: Exception) -> ContextCliffError:
        """The sentence of the blocking check; the exception has no more than its name."""
        if experiment is not None:
            blocking = {check.name for check in experiment.checks if check.blocking}
            with StudyRun.open(self.study, self.store, self.campaign) as run:
                outcomes = experiment.check_records(run, experiment.read_record_table(run))
            if why := [one.why for one in outcomes if one.name in blocking and not one.passed]:
                return EngineError(" ".join(why))
        return ContextCliffError(f"{error}; the run's asset checks say why.")
