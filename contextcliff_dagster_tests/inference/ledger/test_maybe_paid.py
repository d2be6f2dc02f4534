"""Requests that died after they were sent are perhaps paid: marked, charged and shown."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.archive.results import export_results
from contextcliff_dagster.cli.commands.report import spent_lines
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.measuring_process import Measurement
from contextcliff_dagster_tests.support.records.calls import (
    faulty_server,
    openai_entry,
    unreliable_server,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE, rows_of, run


def keys(rows: list[dict[str, object]]) -> list[str]:
    return [str(row["call_key"]) for row in rows]


def exported(ledger: Ledger, folder: Path) -> list[int]:
    """The column ``maybe_paid`` of the calls as files for other programs have it."""
    for name in ("calls.jsonl", "calls.parquet"):
        export_results(ledger, "s", None, folder / name)
    lines = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert {line["no_answer"] for line in lines} == {None}, "each was answered in the end"
    result: list[int] = [line["maybe_paid"] for line in lines]
    assert pq.read_table(folder / "calls.parquet")["maybe_paid"].to_pylist() == result
    return result


@pytest.mark.parametrize(
    ("fault", "perhaps"), [("cut", 1), ("broken_json", 1), ("html", 1), ("429", 0)]
)
def test_a_fault_after_sending_is_marked_and_charged(
    ledger: Ledger, fault: str, perhaps: int, tmp_path: Path
) -> None:
    with faulty_server([fault, "ok"]) as url:
        entry = openai_entry(url, concurrency=1, price=PRICE)
        summary = run(ledger, entry, n=1, bins=SAMPLE.bins[:1])
    (key,) = keys(rows_of(ledger, n=1, model=entry.name, bins=SAMPLE.bins[:1]))
    marked = ledger.maybe_paid([key])
    assert (summary.maybe_paid, marked.requests) == (perhaps, perhaps)
    assert summary.maybe_paid_usd == pytest.approx(marked.usd)
    assert (marked.usd > 0) is bool(perhaps)
    (answer,) = [outcome.cost_usd for outcome in ledger.outcomes([key]).values()]
    assert answer is not None
    assert ledger.spent("s", "c").usd == pytest.approx(answer + marked.usd)
    stats = ledger.stats()
    assert (stats["maybe_paid"], stats["orphans"]) == (perhaps, 0)
    assert stats["maybe_paid_usd"] == pytest.approx(marked.usd)
    (row,) = ledger.stats_by_campaign()
    assert (row["maybe_paid"], row["maybe_paid_usd"]) == (perhaps, pytest.approx(marked.usd))
    assert exported(ledger, tmp_path) == [perhaps]


def test_what_a_killed_process_had_sent_is_marked_and_charged(
    tmp_path: Path, ledger_at: Path | DatabaseUrl
) -> None:
    where = str(ledger_at) if isinstance(ledger_at, Path) else ledger_at.secret
    with unreliable_server(delay_ms=20) as url:
        measurement = Measurement(
            where, url, bins=2, documents=3, entry={"price": PRICE, "concurrency": 1}
        )
        killed = Measurement(
            where, url, bins=2, documents=3, entry=measurement.entry, die_after=2
        ).start()
        assert killed.wait(120) == -signal.SIGKILL
        summary = measurement.measure()
    rows = measurement.rows()
    assert {row["attempts"] for row in rows} == {1}
    with measurement.open_ledger() as ledger:
        marked = ledger.maybe_paid(keys(rows))
        (row,) = ledger.stats_by_campaign()
        stats = ledger.stats()
        assert sorted(exported(ledger, tmp_path)) == [0, 0, 0, 0, 0, 1]
    assert (summary.orphans, marked.requests) == (1, 1)
    assert summary.orphans_usd == pytest.approx(marked.usd)
    assert marked.usd > 0
    assert (stats["orphans"], stats["orphans_usd"]) == (1, pytest.approx(marked.usd))
    assert (row["orphans"], row["maybe_paid"]) == (1, 1)
    assert row["maybe_paid_usd"] == pytest.approx(marked.usd)
    # Orphans are of a model: another one's run does not count them again.
    with measurement.open_ledger() as ledger:
        assert ledger.orphans("s", "c", "another") == []


def test_the_command_line_says_what_was_perhaps_paid() -> None:
    lines = spent_lines(
        {
            "a": RunSummary(planned=3, sent=4, answered=3, maybe_paid=1, maybe_paid_usd=0.5),
            "b": RunSummary(planned=3, sent=3, answered=3, orphans=2, orphans_usd=1.25),
        },
        "tiny",
    )
    assert lines[1:] == [
        "Perhaps paid, and charged to the budget ($0.5000): 1 request died after being sent.",
        "Perhaps paid, and charged to the budget ($1.25): 2 calls in flight when an earlier run "
        "ended, sent again.",
    ]
    assert len(spent_lines({"a": RunSummary(planned=3, sent=3, answered=3)}, "tiny")) == 1
