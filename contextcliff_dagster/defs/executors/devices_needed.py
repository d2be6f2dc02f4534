"""How many devices a step still needs: none for models that were asked everything already.

Looked at before the step's process starts, which would otherwise wait for devices that it never
opens. A step that finds a call left all the same leases for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import group
from contextcliff_dagster.defs.executors.device_tags import STUDY_TAG, gpus_of_models, gpus_of_step
from contextcliff_dagster.defs.partitions import cells_by_model, tagged_partitions
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import models_left
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import asked_experiments
from contextcliff_dagster.inference.devices.discovery import Gpus
from contextcliff_dagster.store import slug
from contextcliff_dagster.studies import Study, find_study

if TYPE_CHECKING:
    import dagster as dg


def gpus_left(key: str, step_tags: Mapping[str, str], run: dg.DagsterRun) -> Gpus:
    """As `gpus_of_step`, for those models of the step ``key`` that have a call left in this run.

    Raises:
        ValueError: the step's tag of devices is not what it should be.
    """
    asked = gpus_of_step(step_tags, run.tags)
    if asked == 0 or STUDY_TAG not in step_tags:
        return asked
    try:
        left = _left(find_study(step_tags[STUDY_TAG]), key, run)
    except ContextCliffError:  # the step will say so itself
        return asked
    return asked if left is None else gpus_of_models(step_tags, left)


def _left(study: Study, key: str, run: dg.DagsterRun) -> list[str] | None:
    """Partition keys of the models with a call left; None where the run does not say enough."""
    run_config: Any = run.run_config
    root = run_config.get("resources", {}).get("store", {}).get("config", {}).get("root", "")
    experiment = _experiment_of(study, key)
    if experiment is None or not isinstance(root, str):  # the environment names the store
        return None
    partitions = tagged_partitions(run.tags, study, experiment)
    store = StoreResource(root=root).open()
    if partitions is None or not store.has_ledger:
        return None
    config = run_config.get("ops", {}).get(key, {}).get("config", {})
    if config.get("from_ledger_only"):
        return []
    cells_of = cells_by_model(study, partitions)
    with StudyRun.open(study, store, config.get("campaign")) as study_run:
        left = models_left(study_run, experiment, cells_of, config.get("samples_per_bin"))
    return [slug(model) for model in left]


def _experiment_of(study: Study, key: str) -> Experiment | None:
    """The experiment whose predictions the step ``key`` makes."""
    for experiment in asked_experiments(study):
        if key in {f"{group(study)}__{name}" for name in experiment.asset_names("predictions")}:
            return experiment
    return None
