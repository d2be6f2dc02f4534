"""Batches that a provider still works on: the sensor that takes in their answers.

No run waits for a batch: a measuring run ends once its calls are asked, and its cells show what
they wait for. Until the answers are there, the campaign is not reported, its next round is not
planned, and no schedule begins another.
"""

# No `from __future__ import annotations` here: Dagster reads resources off the annotations of
# sensors, and does not resolve strings.

import json
import time
from collections.abc import Sequence
from itertools import groupby

import dagster as dg

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.campaign_runs import Asked, Measurement, open_batches
from contextcliff_dagster.defs.dagster_internals import NOT_FINISHED_STATUSES
from contextcliff_dagster.defs.resources import StoreResource
from contextcliff_dagster.experiments.lookup import measuring_assets, partitioned
from contextcliff_dagster.inference.execution.batches import has_ended
from contextcliff_dagster.inference.ledger.batches import CallBatch
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.studies import Study

FIRST_LOOK_S, LAST_LOOK_S = 60.0, 900.0
"""Seconds between two looks at a batch: the first, and the most, each half as long again."""
_TICK_S = 30.0
"""Seconds that the looks of one tick may take; Dagster ends a tick after a minute."""


def batch_sensor(studies: Sequence[Study]) -> dg.SensorDefinition:
    """Return `look_after_batches`, which asks the providers of open batches how far they are, less
    and less often, and starts a run that takes in the answers of each that has ended.

    Its run asks again, in a new batch, what the ended one did not answer. The cursor holds, for
    each campaign and model, the time of the next look, the wait after it, and how many runs were
    started. A batch whose provider cannot be asked for good (no key, say) gets a run, too: its
    failure shows.
    """
    by_name = {study.name: study for study in studies}
    asking = [
        asset_key(study, name)
        for study in studies
        for experiment in partitioned(study)
        for name in measuring_assets(study, experiment)
    ]

    @dg.sensor(
        name="look_after_batches",
        asset_selection=dg.AssetSelection.assets(*asking),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Takes in the answers of batches once their providers have them.",
    )
    def look_after_batches(
        context: dg.SensorEvaluationContext, contextcliff_store: StoreResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        looks: dict[str, tuple[float, float, int]] = json.loads(context.cursor or "{}")
        kept: dict[str, tuple[float, float, int]] = {}
        requests: list[dg.RunRequest] = []
        ends_at = time.monotonic() + _TICK_S
        opened = open_batches(contextcliff_store.open())
        for (name, campaign, model), group in groupby(sorted(opened, key=_place), _place):
            study = by_name.get(name)
            if study is None or model not in study.models:
                continue  # of another location, or left to `contextcliff batches`
            key = f"{name}/{campaign}/{model}"
            due, wait_s, runs = looks.get(key, (0.0, FIRST_LOOK_S, 0))
            left_s = ends_at - time.monotonic()
            if time.time() >= due and left_s > 0 and not _is_measured(context, name, campaign):
                if any(_needs_a_run(context, batch, left_s) for batch in group):
                    runs += 1
                    requests += _requests(study, campaign, model, f"{key}/{runs}")
                due, wait_s = time.time() + wait_s, min(1.5 * wait_s, LAST_LOOK_S)
            kept[key] = (due, wait_s, runs)
        context.update_cursor(json.dumps(kept))
        return requests or dg.SkipReason(f"{len(opened)} open batches; none has ended.")

    return look_after_batches


def _needs_a_run(context: dg.SensorEvaluationContext, batch: CallBatch, within_s: float) -> bool:
    try:
        return has_ended(get_model(batch.model), batch, within_s)
    except TimeoutError:
        return False
    except ContextCliffError as error:
        context.log.warning(f"Batch {batch.owner} of {batch.model}: {error}")
        return True


def _place(batch: CallBatch) -> tuple[str, str, str]:
    return batch.study, batch.campaign, batch.model


def _is_measured(context: dg.SensorEvaluationContext, study: str, campaign: str) -> bool:
    """Return whether a run of the campaign has not ended, which looks after its batches itself."""
    of = {"contextcliff/study": study, "contextcliff/campaign": campaign}
    running = dg.RunsFilter(tags=of, statuses=list(NOT_FINISHED_STATUSES))
    return bool(context.instance.get_runs(running, limit=1))


def _requests(study: Study, campaign: str, model: str, key: str) -> list[dg.RunRequest]:
    """Return one request for each experiment of the study; only one has calls in a batch."""
    config = {"resume_batches": True}
    return [
        Measurement(study, experiment, campaign, "sensor").request(
            f"batches/{key}/{experiment.name}",
            Asked([model], experiment.cells(study), config, for_guests=True),
        )
        for experiment in partitioned(study)
    ]
