"""Short ways to a result, and the contract's schemas."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib.resources import files

import pandas as pd
from jsonschema import Draft202012Validator

from contextcliff_dagster.analysis.profile import (
    AnalysisSettings,
    ModelProfile,
    ProfileContext,
    profile_model,
)
from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.contracts.results.json_form import BinResult
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
        validator.validate(json.loads(json.dumps(to_json(result), allow_nan=False)))


def cliffs_of(records: pd.DataFrame, settings: AnalysisSettings = QUICK) -> Cliffs:
    profile = profile_model(records, bins_of(records), settings, CONTEXT)
    assert_conforms(profile)
    return profile.cliffs


def bin_of(**known: object) -> BinResult:
    """A bin of which only this is known."""
    unknown = {one.name: None for one in fields(BinResult)}
    return BinResult(**{**unknown, "n": 0, "missing": 0, **known})  # type: ignore[arg-type]


def changed(one: object, other: object) -> set[str]:
    """Fields in which two results of a kind differ."""
    return {f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)}  # type: ignore[arg-type]
