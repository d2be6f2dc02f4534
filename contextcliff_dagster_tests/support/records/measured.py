"""Measuring the ledger sample, and what that leaves, as several tests do."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    plan_of,
    reference_entry,
)

SAMPLE = LedgerSample(3, 6, max_tokens=200)
PRICE = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}


_CONTROL = {field.name for field in fields(RunControl)}


def run(
    ledger: Ledger,
    entry: ModelEntry | None = None,
    n: int = 6,
    recipe: Recipe = RECIPE,
    **more: Any,
) -> RunSummary:
    """Measure ``n`` examples a bin; ``more``: for the plan, the `RunControl` and `measure`."""
    control = RunControl(**{name: more.pop(name) for name in _CONTROL & more.keys()})
    further = {name: more.pop(name) for name in {"on_bin", "engine"} & more.keys()}
    plan = plan_of(SAMPLE, n, recipe=recipe, **more)
    return measure(plan, entry or reference_entry(), ledger, control, **further)


def rows_of(
    ledger: Ledger,
    n: int = 6,
    recipe: Recipe = RECIPE,
    model: str = "reference-short",
    **more: Any,
) -> list[dict[str, Any]]:
    """The prediction rows of what is measured."""
    return prediction_rows(plan_of(SAMPLE, n, recipe=recipe, **more), model, ledger)
