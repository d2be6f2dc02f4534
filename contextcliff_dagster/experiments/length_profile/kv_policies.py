"""KV policies among the models of a study: which model is which policy of which base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.contracts.results.kv import UNPRESSED, KvPolicy
from contextcliff_dagster.inference.models.kv_variants import (
    POLICIES,
    kv_baseline,
    kv_of,
    parse_kv_variant,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model, load_models

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.kv_family import KvFamily
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.common.study_run import StudyRun


def policy_of(name: str, models: Mapping[str, ModelEntry] | None = None) -> KvPolicy | None:
    """Return how the cache of model ``name`` is kept; None where its entry is gone.

    An entry of models.yaml with a policy of its own counts as one of the first entry without that
    has the same weights.
    """
    models = load_models() if models is None else models
    try:
        entry = get_model(name, models)
    except StudyError:
        gone = parse_kv_variant(name)
        return KvPolicy(*gone) if gone else None
    variant = kv_of(entry)
    if variant is None:
        own = "none" if entry.engine == "kvpress" else UNPRESSED
        return KvPolicy(name, own)
    base = variant.base if variant.base != name else _same_weights(entry, models)
    return KvPolicy(base, variant.policy, variant.budget)


def _same_weights(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> str:
    source = (entry.weights, entry.model_id)
    alike = (
        other.name
        for other in models.values()
        if (other.weights, other.model_id) == source and kv_of(other) is None
    )
    return next(alike, entry.name)


def baseline_of(name: str, among: Mapping[str, KvPolicy]) -> str | None:
    """Return the model that ``name`` is compared with, of those ``among``; None where it is none.

    The one that `kv_variants.kv_baseline` names, where that is measured, else another of the same
    base that keeps everything.
    """
    kv = among[name]
    if kv.keeps_all:
        return None
    whole = [m for m, other in among.items() if other.base == kv.base and other.keeps_all]
    try:
        named = kv_baseline(get_model(kv.base), kv.policy)
    except StudyError:
        named = f"{kv.base}+none" if kv.policy in POLICIES else kv.base
    if named in among and named != name:
        return named
    return next(iter(whole), None)


def kv_families(run: StudyRun, cliffs: Sequence[Cliffs], records: pd.DataFrame) -> list[KvFamily]:
    """Return the policies of each model that was measured under several, on the same examples."""
    models = load_models()
    among = {c.model: kv for c in cliffs if (kv := policy_of(c.model, models)) is not None}
    baselines = {name: own for name in among if (own := baseline_of(name, among)) is not None}
    bases = dict.fromkeys(among[name].base for name in baselines)
    if not bases:
        return []
    from contextcliff_dagster.analysis.comparison import Measured
    from contextcliff_dagster.analysis.kv_family import kv_family

    rows = dict(iter(records.groupby("model", sort=False)))
    return [
        kv_family(
            [
                Measured(c.model, rows[c.model], c, kv)
                for c in cliffs
                if c.model in rows and (kv := among.get(c.model)) is not None and kv.base == base
            ],
            baselines,
            run.manifest.bins,
            run.study.analysis_settings(),
        )
        for base in bases
    ]
