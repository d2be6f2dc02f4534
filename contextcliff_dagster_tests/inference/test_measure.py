"""Measuring: what is paid once is kept, what is finished starts nothing, what changed is
refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import (
    PREDICTIONS,
    BudgetError,
    EngineError,
    StoreError,
    conform,
)
from contextcliff_dagster.inference.budget import Budget
from contextcliff_dagster.inference.campaigns import (
    current_campaign,
    list_campaigns,
    new_campaign,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.cost import estimate
from contextcliff_dagster.inference.engine import Identity
from contextcliff_dagster.inference.ledger import Ledger
from contextcliff_dagster.inference.measure import measure
from contextcliff_dagster.inference.models import ModelEntry
from contextcliff_dagster.inference.progress import Progress, RunSummary
from contextcliff_dagster.inference.recipe import Recipe
from contextcliff_dagster.inference.records import prediction_rows
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.inference.samples import (
    RECIPE,
    LedgerSample,
    faulty_server,
    openai_entry,
    read_log,
    reference_entry,
    reference_server,
)

SAMPLE = LedgerSample(3, 6, max_tokens=200)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "state.db") as opened:
        yield opened


def run(
    ledger: Ledger,
    entry: ModelEntry | None = None,
    n: int = 6,
    recipe: Recipe = RECIPE,
    **more: Any,
) -> RunSummary:
    where = {"study": "s", "campaign": "c", "bins": SAMPLE.bins, **more}
    return measure(SAMPLE, entry or reference_entry(), recipe, ledger, n=n, **where)


def rows_of(
    ledger: Ledger, n: int = 6, recipe: Recipe = RECIPE, **more: Any
) -> list[dict[str, Any]]:
    where = {"study": "s", "campaign": "c", "model": "reference-short", "bins": SAMPLE.bins, **more}
    return prediction_rows(SAMPLE, ledger, recipe=recipe, n=n, **where)


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
    summary = run(ledger, engine=NoEngine(), on_bin=lambda name, rows: bins.append(name))
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


def test_bins_are_announced_as_they_end_with_their_rows(ledger: Ledger) -> None:
    told: dict[str, int] = {}
    seen: list[Progress] = []
    thread = threading.current_thread()

    def on_bin(name: str, rows: list[dict[str, Any]]) -> None:
        assert threading.current_thread() is thread
        told[name] = len(rows)

    run(ledger, on_bin=on_bin, progress=seen.append)
    assert told == dict.fromkeys(SAMPLE.bins, 6)
    assert (seen[-1].done, seen[-1].planned, seen[-1].in_flight) == (18, 18, 0)


def test_a_new_campaign_measures_again_and_a_resumed_one_does_not(ledger: Ledger) -> None:
    first = current_campaign(ledger, "s")
    assert current_campaign(ledger, "s") == first
    assert run(ledger, campaign=first).sent == 18
    second = new_campaign(ledger, "s")
    assert second == f"{first}-2"
    assert current_campaign(ledger, "s") == second
    assert run(ledger, campaign=second).sent == 18
    assert run(ledger, campaign=first).sent == 0
    assert [campaign.name for campaign in list_campaigns(ledger, "s")] == [first, second]
    assert list_campaigns(ledger, "other") == []


def test_a_document_that_does_not_fit_the_window_is_kept_apart_and_not_sent(ledger: Ledger) -> None:
    summary = run(ledger, reference_entry(window_tokens=100))
    rows = rows_of(ledger)
    over = [row for row in rows if row["no_answer"] == "context_overflow"]
    assert len(over) == summary.context_overflow > 0
    assert summary.sent == 18 - len(over)
    assert all(row["length_tokens"] > 80 and row["raw_output"] is None for row in over)


def test_changed_weights_under_an_old_name_are_refused_within_the_campaign(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(weights_path("reference-short"), folder)
    run(ledger, reference_entry(weights=str(folder)), n=2)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    for n in (2, 6):  # finished or not
        with pytest.raises(EngineError, match=r"weights_sha256: .* -> .*campaign new s"):
            run(ledger, reference_entry(weights=str(folder)), n=n)
    assert run(ledger, reference_entry(weights=str(folder)), n=2, campaign="next").sent == 6


def test_a_setting_corrected_before_anything_was_measured_is_no_change(ledger: Ledger) -> None:
    record_identity(ledger, "s", "c", "m", Identity({"dtype": "float16"}))
    record_identity(ledger, "s", "c", "m", Identity({"dtype": "float32"}))
    recorded = recorded_identity(ledger, "s", "c", "m")
    assert recorded is not None
    assert recorded.fields == {"dtype": "float32"}


def test_prices_and_addresses_with_a_revision_are_not_identity(ledger: Ledger) -> None:
    price = {"input_usd_per_mtok": 5, "output_usd_per_mtok": 5}
    with faulty_server(["ok"]) as url:
        run(ledger, openai_entry(url, revision="r1"), n=2)
    with faulty_server(["ok"]) as url:
        summary = run(ledger, openai_entry(url, revision="r1", price=price), n=6)
    assert (summary.cached, summary.sent) == (6, 12)


def test_weights_that_change_behind_an_address_are_noticed_where_the_server_tells(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(weights_path("reference-short"), folder)
    (tmp_path / "models.yaml").write_text("models:\n  w: {engine: reference, weights: weights}\n")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    with reference_server("w") as url:
        assert run(ledger, openai_entry(url, model_id="w", revision="r1"), n=1).sent == 3
    recorded = recorded_identity(ledger, "s", "c", "remote")
    assert recorded is not None
    assert recorded.fields["server_max_model_len"] == 8192
    assert recorded.window_tokens == 8192
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    changed = pytest.raises(EngineError, match="server_meta")
    with reference_server("w") as url, changed:
        run(ledger, openai_entry(url, model_id="w", revision="r1"), n=2)


PRICE = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}


def test_the_budget_stops_before_it_is_exceeded_and_the_next_run_goes_on(ledger: Ledger) -> None:
    entry = reference_entry(price=PRICE, concurrency=3)
    with pytest.raises(BudgetError, match="run the same command"):
        run(ledger, entry, budget=Budget(usd=0.6))
    spent = ledger.spent("s", "c").usd
    done = ledger.stats()["answers"]
    assert 0 < spent <= 0.6
    summary = run(ledger, entry, budget=Budget(usd=100))
    assert summary.cached == done
    assert sum(row["cost_usd"] for row in rows_of(ledger)) == pytest.approx(
        ledger.spent("s", "c").usd
    )


def test_stop_ends_the_run_and_keeps_what_was_in_flight(ledger: Ledger) -> None:
    with reference_server(delay_ms=100) as url:
        entry, sent = openai_entry(url, concurrency=2), ledger.stats
        summary = run(ledger, entry, stop=lambda: sent()["attempts"] >= 3)
    assert summary.stopped
    assert 0 < summary.answered < 18
    assert ledger.orphans() == []
    assert ledger.stats()["attempts"] == summary.answered


def test_a_fault_of_the_callers_callback_ends_the_run_cleanly(ledger: Ledger) -> None:
    def broken(progress: Progress) -> None:
        if progress.done:
            raise RuntimeError("the caller's own fault")

    with pytest.raises(RuntimeError):
        run(ledger, progress=broken)
    assert ledger.orphans() == []
    assert run(ledger).cached > 0


def test_calls_in_flight_are_given_up_after_the_grace_and_may_have_been_paid(
    tmp_path: Path,
) -> None:
    from contextcliff_dagster.inference.calls import plan_calls
    from contextcliff_dagster.inference.ledger import Scope
    from contextcliff_dagster.inference.runner import run_calls
    from contextcliff_dagster.inference.session import EngineSession

    log = tmp_path / "requests.jsonl"
    with faulty_server(["stall"], log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=2)
        with EngineSession(entry) as session:
            calls = plan_calls(SAMPLE, session.identity.hash, RECIPE, "c", SAMPLE.bins, 6)
            scope = Scope("s", "c", "remote", session.identity.hash)
            summary = run_calls(
                calls,
                session=session,
                ledger=ledger,
                scope=scope,
                stop=lambda: len(read_log(log)) == 2,
                grace_s=0.3,
            )
        assert (summary.stopped, summary.answered) == (True, 0)
        stats = ledger.stats()
        assert (stats["maybe_paid"], stats["orphans"]) == (2, 0)
        # Interrupted is not measured: no row, and the next run asks again.
        assert rows_of(ledger, model="remote") == []


def test_the_estimate_counts_what_is_not_paid_yet(ledger: Ledger) -> None:
    entry = reference_entry(price=PRICE)
    where: dict[str, Any] = {"study": "s", "campaign": "c", "bins": SAMPLE.bins, "n": 6}
    before = estimate(SAMPLE, [entry], RECIPE, ledger, **where)
    assert (before.calls, before.cached) == (18, 0)
    run(ledger, entry, n=2)
    after = estimate(SAMPLE, [entry], RECIPE, ledger, **where)
    assert (after.calls, after.cached) == (12, 6)
    assert 0 < after.usd < before.usd <= before.usd_at_most
    run(ledger, entry)
    assert estimate(SAMPLE, [entry], RECIPE, ledger, **where).to_dict()["usd"] == 0
    # The estimate was no less than what was paid, and not absurdly more.
    assert ledger.spent("s", "c").usd <= before.usd_at_most
    assert before.usd <= 2 * ledger.spent("s", "c").usd
    assert estimate(SAMPLE, [openai_entry("http://x/v1")], RECIPE, None, **where).unpriced == (
        "remote",
    )


def test_a_measurement_on_a_disk_that_fills_keeps_every_answer_in_flight(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs the right to mount a small file system")
    try:
        filler = disk / "filler"

        def fill(progress: Progress) -> None:
            if progress.done >= 5 and not filler.exists():
                with filler.open("wb", buffering=0) as file, suppress(OSError):
                    while True:
                        file.write(bytes(4096))

        with reference_server(delay_ms=200) as url:
            entry = openai_entry(url, concurrency=2)
            with (
                Ledger.open(disk / "state.db") as ledger,
                pytest.raises(StoreError, match="disk is full"),
            ):
                run(ledger, entry, progress=fill)
            filler.unlink()
            with Ledger.open(disk / "state.db") as ledger:
                kept = ledger.stats()
                assert kept["answers"] == kept["attempts"] >= 6
                assert kept["orphans"] == 0
                summary = run(ledger, entry)
                assert (summary.cached, summary.answered) == (kept["answers"], 18 - kept["answers"])
    finally:
        subprocess.run(["umount", str(disk)], check=False)


def test_importing_what_defs_import_loads_no_heavy_library() -> None:
    code = (
        "import sys, contextcliff_dagster.inference.measure, contextcliff_dagster.inference.cost,"
        "contextcliff_dagster.inference.records, contextcliff_dagster.inference.campaigns;"
        "print([m for m in ('openai', 'httpx2', 'numpy', 'pyarrow', 'tokenizers', 'starlette') "
        "if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
