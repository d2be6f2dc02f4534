"""Short ways to a result, and the contract's schemas."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pandas as pd
from jsonschema import Draft202012Validator

from contextcliff_dagster.analysis.profile.model_profile import (
    AnalysisSettings,
    ModelProfile,
    ProfileContext,
    profile_model,
)
from contextcliff_dagster_tests.support.records.planted_curves import bins_of

QUICK = AnalysisSettings(resamples=200, permutations=199, second_opinions=False)
CONTEXT = ProfileContext("m", window_tokens=8_192, created_at="2026-01-02T03:04:05+00:00")


def schema(name: str) -> Draft202012Validator:
    text = (files("contextcliff_dagster") / "schemas" / f"{name}.schema.json").read_text("utf-8")
    return Draft202012Validator(json.loads(text))


CLIFFS, METRICS = schema("cliffs"), schema("metrics")


def assert_conforms(profile: ModelProfile) -> None:
    """Both files meet their schema and survive JSON (no NaN, no NumPy scalars)."""
    for validator, result in ((CLIFFS, profile.cliffs), (METRICS, profile.metrics)):
        validator.validate(json.loads(json.dumps(result, allow_nan=False)))


def cliffs_of(records: pd.DataFrame, settings: AnalysisSettings = QUICK) -> dict[str, Any]:
    profile = profile_model(records, bins_of(records), settings, CONTEXT)
    assert_conforms(profile)
    return profile.cliffs
