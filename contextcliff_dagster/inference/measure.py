"""Measure one model on one manifest: the function that Dagster, the CLI and notebooks call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextcliff_dagster.inference.budget import Budget
from contextcliff_dagster.inference.calls import SampleSource
from contextcliff_dagster.inference.ledger import Ledger
from contextcliff_dagster.inference.models import ModelEntry
from contextcliff_dagster.inference.progress import Progress, RunSummary
from contextcliff_dagster.inference.recipe import Recipe


def measure(
    manifest: SampleSource,
    entry: ModelEntry,
    recipe: Recipe,
    ledger: Ledger,
    *,
    study: str,
    campaign: str,
    bins: Sequence[str],
    n: int,
    budget: Budget | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    on_bin: Callable[[str, list[dict[str, Any]]], None] | None = None,
) -> RunSummary:
    """Make every call that has no outcome yet, with one start of the engine for all bins.

    Where the ledger has all outcomes the engine is not started and no call is made. ``progress``
    and ``on_bin`` (a bin is complete; its prediction rows) are called in the caller's thread.

    Raises:
        EngineError: the engine cannot start or be trusted further, or it is not the one that this
            campaign began with. What was measured is kept.
        BudgetError: the next call would exceed the budget. What was measured is kept.
        StoreError: the ledger cannot be written.
        KeyboardInterrupt: after the calls in flight have ended or been given up.
    """
    raise NotImplementedError
