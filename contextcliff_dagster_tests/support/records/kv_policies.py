"""Records of a model under several KV policies, with planted scores, memory and times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

import numpy as np

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.comparison import Measured
from contextcliff_dagster.analysis.kv_family import KvFamily, kv_family
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results.comparison import KvPolicy
from contextcliff_dagster_tests.support.records.planted_curves import Curve, bins_of, plant, ramp

SETTINGS = AnalysisSettings(second_opinions=False)
PLANTED: Mapping[KvPolicy, Curve] = {
    KvPolicy("m", "random", 0.5): lambda x: 0.4 * ramp(1_500)(x),
    KvPolicy("m", "none"): ramp(1_500),
    KvPolicy("m", "knorm", 0.5): lambda x: 0.4 * ramp(1_500)(x),
    KvPolicy("m", "snapkv", 0.2): lambda x: np.minimum(ramp(1_500)(x), ramp(700)(x)),
    KvPolicy("m", "snapkv", 0.5): ramp(1_500),
}


def measured(kv: KvPolicy, curve: Curve) -> Measured:
    """A model that follows ``curve``; the same random numbers decide the answers of all."""
    records = plant(curve, 1)
    extra = [
        {
            "kv_bytes": 2_000 * kv.budget * n,
            "kv_prefill_ms": 0.2 * n,
            "kv_press_ms": 3.0,
            "kv_question_ms": 5.0 + 0.2 * n,
            "kv_decode_ms": 10.0 + 0.001 * kv.budget * n,
        }
        for n in records["length_tokens"]
    ]
    records = records.assign(extra=[json.dumps(one) for one in extra])
    name = "m+none" if kv.policy == "none" else f"m+{kv.policy}@{kv.budget:g}"
    context = ProfileContext(name, task="lookup", tokenizer="t")
    profile = profile_model(records, bins_of(records), SETTINGS, context)
    return Measured(name, records, profile.cliffs, kv)


@cache
def planted_family() -> KvFamily:
    """One in which snapkv at 50% is as good as the whole cache, and knorm as random."""
    sides = [measured(kv, curve) for kv, curve in PLANTED.items()]
    baselines = {one.name: "m+none" for one in sides if one.name != "m+none"}
    return kv_family(sides, baselines, bins_of(sides[0].records), SETTINGS)
