"""The next round of a targeted measurement, from what a campaign has scored so far."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.common.record_tables import read_records
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.allocation import Round, Target
    from contextcliff_dagster.sampling.manifest import Manifest


def plan_rounds(
    study: Study, store: Store, manifest: Manifest, campaign: str, target: Target
) -> dict[str, Round]:
    """What each model of ``study`` is to be asked next, in the study's order.

    Each bin gives at most what the study samples. Records that cannot be read count as none: what
    they were made of is in the ledger, and asking for it again costs nothing.
    """
    from contextcliff_dagster.analysis.design.allocation import plan_round
    from contextcliff_dagster.analysis.records import Documents, clean_records

    planned = {
        b.bin: manifest.planned(b.bin, study.sampling.samples_per_bin)
        for b in manifest.bins
        if b.merged_into is None
    }
    candidates = {
        bin: np.array([sample.length_tokens for sample in samples], dtype=np.int64)
        for bin, samples in planned.items()
    }
    bin_of = {s.example.example_id: bin for bin, samples in planned.items() for s in samples}
    records = None
    with suppress(StoreError):  # none is written yet
        records = read_records(study, store, campaign)
        with open_ledger(store, to_read=True) as ledger:  # what was only imported is asked for, too
            keys = records["call_key"]
            foreign = ledger.imported(keys, study.name).keys() - ledger.answered(keys)
        records = records[~keys.isin(foreign)]
    nothing = Documents(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), True)
    settings = study.analysis_settings()
    recipe = study.recipe().hash
    rounds = {}
    for model in study.models:
        asked: dict[str, int] = {}
        documents = nothing
        if records is not None:
            # What was measured of another sample or request is no part of this one.
            current = records["example_id"].isin(bin_of) & (records["recipe_hash"] == recipe)
            own = records[current & (records["model"] == model)]
            if len(own):
                ids = own["example_id"].drop_duplicates()
                asked = {str(k): int(n) for k, n in ids.map(bin_of).value_counts().items()}
                documents = clean_records(own, manifest.bins, settings.chance).documents()
        rounds[model] = plan_round(documents, candidates, asked, target, settings)
    return rounds


def next_rounds(
    study: Study, store: Store, manifest: Manifest, campaign: str
) -> dict[str, dict[str, Any]]:
    """The plans of a study with a section `targeted`, JSON-ready, each with its ``why``.

    Empty for any other study.
    """
    if study.targeted is None:
        return {}
    target = study.target_of_rounds()
    plans = plan_rounds(study, store, manifest, campaign, target)
    return {
        model: {**plan.to_dict(), "why": plan.sentence(plan.number(target))}
        for model, plan in plans.items()
    }
