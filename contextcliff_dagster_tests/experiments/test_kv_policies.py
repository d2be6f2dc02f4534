"""Which model of a study is which policy of which base, and what it is compared with."""

from __future__ import annotations

import pytest

from contextcliff_dagster.contracts.results.comparison import UNPRESSED, KvPolicy
from contextcliff_dagster.experiments.length_profile.profile_and_report import (
    baseline_of,
    policy_of,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry

REFERENCE = {"engine": "reference", "model_id": "reference-short"}
PRESSED = {"engine": "kvpress", "model_id": "reference-short"}


def entries(**written: dict[str, object]) -> dict[str, ModelEntry]:
    return {name: ModelEntry.model_validate({**e, "name": name}) for name, e in written.items()}


@pytest.mark.parametrize(
    ("name", "kv"),
    [
        ("m", KvPolicy("m", UNPRESSED)),
        ("m+none", KvPolicy("m", "none")),
        ("m+snapkv@0.2", KvPolicy("m", "snapkv", 0.2)),
        ("written", KvPolicy("m", "h2o", 0.5)),
        ("gone+snapkv@0.3", KvPolicy("gone", "snapkv", 0.3)),
        ("gone", None),
    ],
)
def test_a_model_is_a_policy_of_its_base(name: str, kv: KvPolicy | None) -> None:
    models = entries(m=REFERENCE, written={**PRESSED, "kv": {"policy": "h2o", "budget": 0.5}})
    assert policy_of(name, models) == kv


def test_each_policy_is_compared_with_what_keeps_everything_in_its_engine() -> None:
    among = {
        "reference-short": KvPolicy("reference-short", UNPRESSED),
        "reference-short+none": KvPolicy("reference-short", "none"),
        "reference-short+snapkv@0.5": KvPolicy("reference-short", "snapkv", 0.5),
    }
    assert baseline_of("reference-short+snapkv@0.5", among) == "reference-short+none"
    assert baseline_of("reference-short+none", among) is None
    del among["reference-short+none"]
    assert baseline_of("reference-short+snapkv@0.5", among) == "reference-short"
    del among["reference-short"]
    assert baseline_of("reference-short+snapkv@0.5", among) is None
