"""A refusal that begins at a length is a limit on the prompt, in whatever words it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    on_a_thread,
    openai_entry,
    plan_of,
)
from contextcliff_dagster_tests.support.servers.limited_server import (
    LIMIT_CHARACTERS,
    RATES,
    REFUSALS,
    LimitedServer,
)

SAMPLE = LedgerSample(3, 5)


def rows_after(
    server: LimitedServer, folder: Path, limits: tuple[int, ...] = (LIMIT_CHARACTERS,)
) -> tuple[list[list[dict]], list[int]]:
    """Rows of all bins after each of the runs, one a limit, and the requests that each sent."""
    rows: list[list[dict]] = []
    sent: list[int] = []
    with on_a_thread(server.handle) as url, Ledger.open(folder / "state.db") as ledger:
        entry = openai_entry(url, concurrency=2, revision="r1", max_attempts=1)
        plan = plan_of(SAMPLE, 5)
        for server.limit in limits:
            measure(plan, entry, ledger)
            sent.append(len(server.lengths) - sum(sent))
            bins = [plan_of(SAMPLE, 5, bins=[name]) for name in SAMPLE.bins]
            rows.append([row for one in bins for row in prediction_rows(one, entry.name, ledger)])
    return rows, sent


@pytest.mark.parametrize("kind", REFUSALS)
def test_prompts_beyond_a_limit_do_not_fit_whatever_the_server_says(
    kind: str, tmp_path: Path
) -> None:
    limits = (LIMIT_CHARACTERS, LIMIT_CHARACTERS, 10**9)
    (_, rows, raised), sent = rows_after(LimitedServer(REFUSALS[kind]), tmp_path, limits)
    refused = sorted(row["length_tokens"] for row in rows if row["no_answer"])
    assert {row["no_answer"] for row in rows} == {None, "context_overflow"}
    assert len(refused) >= 3
    assert min(refused) > max(row["length_tokens"] for row in rows if not row["no_answer"])
    assert {row["no_answer"] for row in raised} == {None}
    # Each once, then the shortest refused one alone; all where that one is answered.
    assert sent == [15, 1, len(refused)]


def test_a_refusal_that_does_not_depend_on_length_is_no_limit(tmp_path: Path) -> None:
    server = LimitedServer(REFUSALS["anthropic"], moody=True)
    (rows,), _ = rows_after(server, tmp_path, (10**9,))
    assert {row["no_answer"] for row in rows} == {None, "transport_error"}


@pytest.mark.parametrize("kind", RATES)
def test_a_rate_that_a_prompt_exceeds_by_itself_is_a_limit_of_the_account(
    kind: str, tmp_path: Path
) -> None:
    (rows,), sent = rows_after(LimitedServer(RATES[kind]), tmp_path)
    refused = [row for row in rows if row["no_answer"]]
    assert {row["no_answer"] for row in refused} == {"transport_error"}
    assert all("300 tokens a minute" in row["error"] for row in refused)
    assert sent == [15]
