"""Requests for runs that measure a campaign: one for each place, or one for the whole chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import asset_key, report_job_name, run_config, run_tags
from contextcliff_dagster.defs.campaign_runs.places import PLACE_TAG, model_groups, place_of
from contextcliff_dagster.defs.partitions import partition_key, range_tags
from contextcliff_dagster.defs.run_tags import REPORTED_BY
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.lookup import judged_assets, measuring_assets, ops_of
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study


@dataclass(frozen=True)
class Asked:
    """What a run measures: models (neighbours in the study's order) and cells of each.

    ``config``: of the predictions; ``tags``: further tags of the run.
    """

    models: Sequence[str]
    cells: Sequence[str]
    config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Measurement:
    """One experiment of a study in one campaign, and what asks for it (schedule, sensor)."""

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
        """Return a request for each of ``parts``, run key -> what is asked.

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
    """Run config that makes these assets of the experiment's job work on ``campaign``."""
    return run_config(study, campaign, ops_of(experiment, list(assets)), more or {})
