"""Requests for runs that measure a campaign: one for each place, or one for the whole chain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import asset_key, report_job_name, run_config, run_tags
from contextcliff_dagster.defs.executors.gpu import EXECUTOR_VARIABLE
from contextcliff_dagster.defs.partitions import REPORTED_BY, partition_key, range_tags
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import judged_assets, measuring_assets, ops_of
from contextcliff_dagster.inference.devices.discovery import machine_devices
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study


@dataclass(frozen=True)
class Asked:
    """Models of a run (neighbours in the study's order), and the cells of each.

    ``config``: of the predictions; ``tags``: further tags of the run.
    """

    models: Sequence[str]
    cells: Sequence[str]
    config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Measurement:
    """One experiment of a study in one campaign, and its trigger (schedule, sensor)."""

    study: Study
    experiment: Experiment
    campaign: str
    cause: str

    def everything(
        self, store: Store, key: str, config: Mapping[str, Any] | None = None
    ) -> dict[str, Asked]:
        """Return every model and cell under ``key``, in parts for the groups of `model_groups`.

        All in one where the sample is still to be drawn: each run would draw it.
        """
        cells = self.experiment.cells(self.study)
        groups = model_groups(self.study)
        if len(groups) == 1 or not self._is_prepared(store):
            return {key: Asked(self.study.models, cells, config)}
        return {f"{key}/{slug(models[0])}": Asked(models, cells, config) for models in groups}

    def requests(self, parts: Mapping[str, Asked]) -> list[dg.RunRequest]:
        """Return a request for each of ``parts``, a mapping of run keys.

        One part alone takes the whole chain. Of several, each measures, and the report follows
        (`report_sensor`).
        """
        return [self._request(key, part, alone=len(parts) == 1) for key, part in parts.items()]

    def _request(self, key: str, part: Asked, *, alone: bool) -> dg.RunRequest:
        study, experiment = self.study, self.experiment
        asking = measuring_assets(study, experiment)
        names = [*asking, *judged_assets(experiment), "report"] if alone else asking
        config = {asking[0]: part.config} if part.config else {}
        ends = ((part.models[0], part.cells[0]), (part.models[-1], part.cells[-1]))
        tags = {
            **range_tags(study, experiment, [partition_key(experiment, *end) for end in ends]),
            **run_tags(study.with_models(part.models), self.campaign, self.cause),
            **(part.tags or {}),
        }
        if len(places := {place_of(model) for model in part.models}) == 1:
            tags[PLACE_TAG] = places.pop()
        if not alone:
            tags[REPORTED_BY] = report_job_name(study)
        return dg.RunRequest(
            run_key=key,
            run_config=dated_config(study, experiment, self.campaign, names, config),
            tags=tags,
            asset_selection=None if alone else [asset_key(study, name) for name in names],
        )

    def _is_prepared(self, store: Store) -> bool:
        """Whether what the calls are made of is there."""
        from contextcliff_dagster.experiments.common.preparation import find_frozen

        kept = self.experiment.documents
        with suppress(ContextCliffError):  # the run will say so itself
            sampled = not self.study.has_corpus or find_frozen(self.study, store) is not None
            return sampled and (kept is None or kept.frozen(self.study, store) is not None)
        return False


def dated_config(
    study: Study,
    experiment: Experiment,
    campaign: str,
    assets: Iterable[str],
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the run config for these assets of the experiment's job in ``campaign``."""
    return run_config(study, campaign, ops_of(experiment, list(assets)), more or {})


PLACE_TAG = "contextcliff/place"
"""The tag of a run that measures models of one place; it limits the queue of runs."""

_THIS_MACHINE = "this machine"
_WITH_OTHER_DEVICES = ("celery", "k8s", "ray")


def model_groups(study: Study) -> list[list[str]]:
    """Return the study's models in groups of neighbours that share a place.

    Neighbours only: a run takes one range of partitions, which are in the order of the models.
    """
    return [list(models) for _, models in groupby(study.models, key=place_of)]


def place_of(model: str) -> str:
    """Return host and port of the model's endpoint, or the devices that it occupies here.

    A model that is leased GPUs is a place of its own where there are more than one: the leases
    decide which models run at once. One that cannot be looked up, too: its own run says why.
    """
    try:
        entry = get_model(model)
        url = entry.resolved_base_url() if entry.spec.remote else None
    except ContextCliffError:
        return model
    if url is not None:
        address = urlsplit(url)
        return f"{address.hostname}:{address.port}" if address.port else f"{address.hostname}"
    elsewhere = os.environ.get(EXECUTOR_VARIABLE) in _WITH_OTHER_DEVICES
    if entry.gpus_wanted and (elsewhere or len(machine_devices()) > 1):
        return model
    return _THIS_MACHINE
