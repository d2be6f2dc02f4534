"""Measuring the ledger sample, and what that leaves, as several tests do."""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.registry import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.inference.telemetry.progress import RunSummary
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample, reference_entry

SAMPLE = LedgerSample(3, 6, max_tokens=200)
PRICE = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}


def run(
    ledger: Ledger,
    entry: ModelEntry | None = None,
    n: int = 6,
    recipe: Recipe = RECIPE,
    **more: Any,
) -> RunSummary:
    """Measure ``n`` examples a bin."""
    where = {"study": "s", "campaign": "c", "bins": SAMPLE.bins, **more}
    return measure(SAMPLE, entry or reference_entry(), recipe, ledger, n=n, **where)


def rows_of(
    ledger: Ledger, n: int = 6, recipe: Recipe = RECIPE, **more: Any
) -> list[dict[str, Any]]:
    """The prediction rows of what is measured."""
    where = {"study": "s", "campaign": "c", "model": "reference-short", "bins": SAMPLE.bins, **more}
    return prediction_rows(SAMPLE, ledger, recipe=recipe, n=n, **where)
