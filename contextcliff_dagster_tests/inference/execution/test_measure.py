"""Measuring: what is paid once is kept, and what is finished starts nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from contextcliff_dagster.contracts import PREDICTIONS, EngineError, conform
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    openai_entry,
    plan_of,
    reference_entry,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE, rows_of, run


class NoEngine:
    """Stands in where no engine may be started."""

    async def start(self) -> None:
        raise AssertionError("the engine was started")

    async def stop(self) -> None: ...


def test_every_planned_call_is_a_row_of_the_declared_table(ledger: Ledger) -> None:
    summary = run(ledger)
    rows = rows_of(ledger)
    assert summary.answered == summary.sent == len(rows) == 18
    assert conform(rows, PREDICTIONS).num_rows == 18
    assert [row["bin"] for row in rows] == sorted(row["bin"] for row in rows)
    assert all(row["duration_ms"] >= (row["ttft_ms"] or 0) > 0 for row in rows if row["raw_output"])
    overhead = {row["prompt_tokens"] - row["length_tokens"] for row in rows}
    assert len(overhead) == 1, "the scaffold's tokens are the same for every length"


def test_a_finished_study_makes_no_call_and_starts_no_engine(ledger: Ledger) -> None:
    run(ledger)
    before = rows_of(ledger)
    bins: list[str] = []
    summary = run(ledger, engine=NoEngine(), on_bin=bins.append)
    assert (summary.cached, summary.sent) == (18, 0)
    assert bins == SAMPLE.bins
    assert rows_of(ledger) == before


def test_topping_up_asks_only_what_is_new(ledger: Ledger) -> None:
    assert run(ledger, n=2).sent == 6
    summary = run(ledger, n=6)
    assert (summary.cached, summary.sent) == (6, 12)


def test_a_further_replicate_asks_only_what_is_new(ledger: Ledger) -> None:
    run(ledger)
    more = replace(RECIPE, instructions=("{question}", "Now: {question}"))
    summary = run(ledger, recipe=more)
    assert (summary.cached, summary.sent) == (18, 18)
    rows = rows_of(ledger, recipe=more)
    assert {row["replicate"] for row in rows} == {0, 1}
    assert len({row["prompt_hash"] for row in rows}) == 36


def test_bins_are_announced_as_they_end_with_their_rows_in_the_ledger(ledger: Ledger) -> None:
    told: dict[str, int] = {}
    seen: list[Progress] = []
    thread = threading.current_thread()

    def on_bin(name: str) -> None:
        assert threading.current_thread() is thread
        told[name] = len(rows_of(ledger, bins=[name]))

    run(ledger, on_bin=on_bin, on_progress=seen.append)
    assert told == dict.fromkeys(SAMPLE.bins, 6)
    assert (seen[-1].done, seen[-1].planned, seen[-1].in_flight) == (18, 18, 0)


def test_a_document_that_does_not_fit_the_window_is_kept_apart_and_not_sent(ledger: Ledger) -> None:
    summary = run(ledger, reference_entry(window_tokens=100))
    rows = rows_of(ledger)
    over = [row for row in rows if row["no_answer"] == "context_overflow"]
    assert len(over) == summary.context_overflow > 0
    assert summary.sent == 18 - len(over)
    assert all(row["length_tokens"] > 80 and row["raw_output"] is None for row in over)


def test_a_finished_study_says_where_its_entry_cannot_be_opened(ledger: Ledger) -> None:
    run(ledger)
    told: list[str] = []
    gone = reference_entry(model_id="never-made")
    summary = measure(plan_of(SAMPLE, 6), gone, ledger, RunControl(on_wait=told.append))
    assert (summary.cached, summary.sent) == (18, 0)
    (line,) = told
    assert line.startswith("Model 'reference-short': could not check that its entry")
    swapped = reference_entry(engine="llamacpp", weights="/etc/passwd")
    with pytest.raises(EngineError, match="engine: reference -> llamacpp"):
        measure(plan_of(SAMPLE, 6), swapped, ledger)


def test_the_estimate_counts_what_is_not_paid_yet(ledger: Ledger) -> None:
    entry = reference_entry(price=PRICE)
    plan = plan_of(SAMPLE, 6)
    before = estimate([(None, plan)], [entry], ledger)
    assert (before.calls, before.cached) == (18, 0)
    run(ledger, entry, n=2)
    after = estimate([(None, plan)], [entry], ledger)
    assert (after.calls, after.cached) == (12, 6)
    assert 0 < after.usd < before.usd <= before.usd_at_most
    run(ledger, entry)
    assert estimate([(None, plan)], [entry], ledger).to_dict()["usd"] == 0
    # The estimate was no less than what was paid, and not absurdly more.
    assert ledger.spent("s", "c").usd <= before.usd_at_most
    assert before.usd <= 2 * ledger.spent("s", "c").usd
    assert estimate([(None, plan)], [openai_entry("http://x/v1")], None).unpriced == ("remote",)


def test_importing_what_defs_import_loads_no_heavy_library() -> None:
    code = (
        "import sys; from contextcliff_dagster.inference.execution import (cost_estimate, measure,"
        "prediction_rows); from contextcliff_dagster.inference.ledger import campaigns;"
        "print([m for m in ('aiohttp', 'openai', 'numpy', 'pyarrow', 'tokenizers', 'starlette') "
        "if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
