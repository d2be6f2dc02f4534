"""The sentinel: a few examples at the cap, repeated and compared with the pinned baseline.

It is cheap enough for every day, and blind to everything but a loss near the cap. It works on the
ledger alone: a campaign of its own (``sentinel-...``), no asset, no report.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from contextcliff_dagster.contracts import LengthBin, StudyError
from contextcliff_dagster.experiments.common.measurement import (
    Asked,
    measure_cells,
    require_known_answers,
)
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.common.records import read_records
from contextcliff_dagster.experiments.common.study_run import StudyRun, in_order, open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.length_profile.profile_files import (
    by_this_method,
    read_cliffs,
)
from contextcliff_dagster.experiments.length_profile.regression import (
    Regression,
    refused_as_lost,
    require_baseline,
    with_changes,
)
from contextcliff_dagster.experiments.length_profile.scored_records import score_campaign
from contextcliff_dagster.inference.execution.measure import engines_kept
from contextcliff_dagster.inference.execution.run_control import RunControl, deadline_after
from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, ensure_campaign, new_campaign
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.sections import SentinelSection

LEAST_EXAMPLES = 10


def bin_of(cap: int, bins: list[LengthBin]) -> str:
    """Return the bin that contains the cap, where a cliff that moves down shows first.

    One bin of 20 examples detects more than two bins of 10 (benchmarks/regression.py): in the bin
    below, half of the answers survive a halved cap.
    """
    sampled = sorted((b for b in bins if b.merged_into is None), key=lambda b: b.edge_low)
    return sampled[max(sum(b.edge_low <= cap for b in sampled) - 1, 0)].bin


def run_sentinel(
    study: Study,
    store: Store,
    control: RunControl,
    *,
    per_bin: int | None = None,
    campaign: str | None = None,
    on_progress: Callable[[str, Progress], None] | None = None,
    at_place: Callable[[str, RunControl], AbstractContextManager[None]] | None = None,
) -> Regression:
    """Ask each model with a cap some examples of that length, and test for lost answers.

    ``control``'s deadline defaults to the study's. ``per_bin``: examples of the bin that contains
    the cap; None uses the study's number, but never more than it samples. ``campaign``: an
    interrupted sentinel to continue; None begins a new one. ``on_progress`` also gets the model.
    ``at_place`` is entered around the calls to each model.

    Raises:
        StudyError: no baseline is pinned, none of its models has a cap, or ``campaign`` is not a
            sentinel.
        ContextCliffError: a measurement failed; existing answers are kept.
    """
    from contextcliff_dagster.analysis.contrast import pair_records
    from contextcliff_dagster.analysis.regression import RegressionSettings, find_sentinel_shrink

    if campaign is not None and not campaign.startswith(SENTINEL):
        raise StudyError(f"Sentinel campaign {campaign!r} must have a name like {SENTINEL}NAME.")
    pinned = require_baseline(study, store)
    manifest = load_frozen(study, store)
    then = read_records(study, store, pinned.campaign)
    cliffs = read_cliffs(study, store, pinned.campaign)
    caps = {
        result.model: result.safe_cap_tokens
        for result in (by_this_method(study, manifest, then, current) for current in cliffs)
        if result.safe_cap_tokens is not None and result.model in study.models
    }
    if not caps:
        raise StudyError(
            f"No model of study {study.name!r} has a safe cap in its baseline {pinned.campaign}, "
            "so a sentinel has no cap to watch; measure more examples."
        )
    section = study.sentinel or SentinelSection()
    study = study.changed(calls={**dict(study.calls), "batch": False})  # it is to answer now
    n = min(per_bin or section.examples, study.sampling.samples_per_bin)
    if control.deadline_at is None:
        control = replace(control, deadline_at=deadline_after(study.calls.deadline_s))
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    with open_ledger(store) as ledger:
        if campaign is None:
            # Two sentinels begun in the same second get different names.
            campaign = new_campaign(ledger, study.name, name=f"{SENTINEL}{stamp}")
        else:
            ensure_campaign(ledger, study.name, campaign)
        run = StudyRun(study, store, ledger, campaign)
        require_known_answers(run, LENGTH_PROFILE, caps)
        with engines_kept():
            for model in in_order(study, caps):
                asked = Asked(model, [bin_of(caps[model], list(manifest.bins))], n)
                progress = None if on_progress is None else partial(on_progress, model)
                measured = replace(control, on_progress=progress)
                with at_place(model, control) if at_place else nullcontext():
                    measure_cells(run, LENGTH_PROFILE, asked, measured)
        score_campaign(run, LENGTH_PROFILE)
    after = read_records(study, store, campaign)
    rates = RegressionSettings(
        study.regression.flip_rate, study.regression.yearly_error, section.runs_per_year
    )
    shrinks, unjudged = {}, {}
    for model in in_order(study, caps):
        pairs = pair_records(
            then[then["model"] == model],
            refused_as_lost(after[after["model"] == model]),
            manifest.bins,
        )
        if not pairs.paired or len(pairs.examples_a) < LEAST_EXAMPLES:
            unjudged[model] = f"only {len(pairs.examples_a)} examples are answered in both"
            continue
        alpha = rates.alpha(len(caps))
        shrinks[model] = find_sentinel_shrink(pairs, alpha, flip_rate=rates.flip_rate)
    regression = Regression(pinned.campaign, campaign, shrinks, unjudged)
    with open_ledger(store) as ledger:
        return with_changes(regression, study, ledger)
