"""Hundreds of faults of a server, over HTTP: what each does to answer, charge and budget."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.inference.engines.base import MOST_TOKENS, TransportError, Usage
from contextcliff_dagster.inference.engines.openai import wire_format
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    openai_entry,
    plan_of,
    unreliable_server,
)
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.any_reply import _NUMBERS, ANSWER, Case
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.reply_checks import AnyServer, served_run

STREAM = (("Content-Type", "text/event-stream"),)
ODD: tuple[Any, ...] = (*_NUMBERS, "many", "12", "", [], [1], {}, {"a": 1}, None)
"""What no count, name or reason is."""
PRICE = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}
COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details",
          "completion_tokens_details")  # fmt: skip


def answered(*last: object, finish: object = "stop", headers: Any = STREAM) -> Case:
    """The answer in three pieces, its finish reason, and what comes after that."""
    choice = {"index": 0, "delta": {}, "finish_reason": finish}
    events = [wire.chunk(ANSWER[:3]), wire.chunk(ANSWER[3:]), wire.event({"choices": [choice]})]
    body = b"".join([*events, *map(wire.event, last)]) + wire.DONE
    return Case(200, headers, body, ANSWER, f"{last} {finish!r}")


def usage(**counts: object) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 2, **counts}}


KEPT = [
    *(answered(usage(**{name: value})) for name in COUNTS for value in ODD),
    *(answered(usage(prompt_tokens_details={"cached_tokens": value})) for value in ODD),
    *(answered(usage(completion_tokens_details={"reasoning_tokens": value})) for value in ODD),
    *(answered({"choices": [], "usage": value}) for value in ODD),
    *(answered({"choices": [], "metrics": value, "timings": value}) for value in ODD),
    *(
        answered(
            {"choices": [], "metrics": {"queue_time_ms": zero, "time_to_first_token_ms": zero}}
        )
        for zero in (0, 0.0, -0.0)
    ),
    *(answered(usage(), finish=value) for value in ODD if value not in (None, "", "error")),
    *(answered(value) for value in ODD),
    *(answered({"choices": value}) for value in ODD),
    *(answered({"model": value, "system_fingerprint": value, "id": value}) for value in ODD),
    *(answered(usage(), headers=(("Content-Type", kind),)) for kind in ("text/plain", "?", "a/b")),
]
LOST = [
    Case(status, STREAM, body, None, f"{status} {body[:40]!r}")
    for status in (200, 204, 206, 400, 418, 422, 429, 500, 502, 503, 504, 599)
    for body in (b"", b"<html>", b"{", b"[]", b"null", b'{"error": {"message": 5, "code": []}}',
                 b'{"detail": [{"loc": [[1]]}]}', b"\xff\xfe", b"data: {broken\n\n")
]  # fmt: skip


def test_a_fault_next_to_the_answer_costs_no_answer(tmp_path: Path) -> None:
    ends = served_run(KEPT, tmp_path)
    assert len(KEPT) >= 200
    assert ends == Counter({"kept answer": len(KEPT)})


def test_a_reply_without_an_answer_is_a_counted_failure(tmp_path: Path) -> None:
    ends = served_run(LOST, tmp_path)
    assert len(LOST) >= 100
    assert ends["failure"] >= len(LOST)  # and 429, which is asked again
    assert ends["kept answer"] == ends["run ended"] == 0


@pytest.mark.parametrize("count", [-1_000_000, 1e308, "5", 0, MOST_TOKENS, 2**63, None])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_no_reported_usage_switches_a_budget_off_or_ends_it_for_good(
    tmp_path: Path, name: str, count: object
) -> None:
    server = AnyServer([answered(usage(**{name: count}))])
    plan = plan_of(LedgerSample(1, 40, max_tokens=100), 40)
    with on_a_thread(server.handle) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="1", price=PRICE, tokenizer="reference")
        with pytest.raises(BudgetError, match="has no room"):
            measure(plan, entry, ledger, RunControl(Budget(usd=1.0)))
        (reserved,) = ledger.read("SELECT max(reserved_usd) FROM attempts")[0]
        assert 0.9 - reserved <= ledger.spent("s", "c").usd <= 1.0
        assert 5 <= server.served <= 20
        summary = measure(plan, entry, ledger, RunControl(Budget(usd=20.0)))
        assert (summary.answered + summary.cached, server.served) == (40, 40)
        unbelieved = count == MOST_TOKENS
        assert bool(summary.usage_too_large) == unbelieved


@pytest.mark.parametrize("thought", [0, 131_000])
def test_output_beyond_what_was_allowed_and_came_ends_no_budget(
    tmp_path: Path, thought: int
) -> None:
    price = {"input_usd_per_mtok": 0.001, "output_usd_per_mtok": 30}
    details = {"completion_tokens_details": {"reasoning_tokens": thought}} if thought else {}
    server = AnyServer([answered(usage(completion_tokens=131_000, **details))])
    plan = plan_of(LedgerSample(1, 20, max_tokens=100), 20)
    with on_a_thread(server.handle) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="1", price=price, window_tokens=1_000)
        summary = measure(plan, entry, ledger, RunControl(Budget(usd=1.0)))
        assert (summary.answered, summary.usage_too_large) == (20, 0)
        # Eight tokens were allowed; a window of a thousand bounds what was thought.
        most = 8 + (1_000 if thought else 0)
        assert ledger.spent("s", "c").usd == pytest.approx(20 * most * 30e-6, rel=0.02)
        assert summary.cost_usd == pytest.approx(ledger.spent("s", "c").usd)


def test_reservations_follow_the_most_that_the_server_has_counted(tmp_path: Path) -> None:
    source = LedgerSample(1, 20, max_tokens=1_500)
    with (
        unreliable_server(count_factor=3.0, delay_ms=1) as url,
        Ledger.open(tmp_path / "state.db") as ledger,
    ):
        entry = openai_entry(url, concurrency=1, revision="1", price=PRICE)

        def at_most() -> float:
            later = plan_of(LedgerSample(1, 20, seed=1, max_tokens=1_500), 20)
            return estimate([(None, later)], [entry], ledger).usd_at_most

        unknown = at_most()
        measure(plan_of(source, 10), entry, ledger)
        measure(plan_of(source, 20), entry, ledger)
        assert at_most() > 1.2 * unknown, "the shown cost follows, too"
        rows = ledger.read(
            "SELECT estimated_tokens, reserved_tokens, charged_tokens FROM attempts"
            " ORDER BY attempt_id"
        )
        first, *_ = rows
        assert first[1] < first[2], "the first one cannot know"
        # By so much the estimates of prompts differ among themselves.
        assert all(charged <= 1.1 * reserved for _, reserved, charged in rows[10:])


def test_a_usage_that_leaves_most_of_the_prompt_out_is_charged_as_reserved(tmp_path: Path) -> None:
    server = AnyServer([answered(usage(prompt_tokens=1, completion_tokens=1))])
    with on_a_thread(server.handle) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=1, revision="1", price=PRICE)
        plan = plan_of(LedgerSample(1, 4), 4)
        measure(plan, entry, ledger)
        charged = ledger.read("SELECT charged_usd, charged_tokens FROM attempts")
        assert charged == ledger.read("SELECT reserved_usd, reserved_tokens FROM attempts")
        assert ledger.read("SELECT DISTINCT prompt_tokens FROM results") == [(1,)], "as reported"


def test_a_cache_discount_and_another_tokenizer_are_charged_as_reported(tmp_path: Path) -> None:
    price = {**PRICE, "cached_input_usd_per_mtok": 100}
    report = usage(prompt_tokens=60, prompt_tokens_details={"cached_tokens": 50})
    with (
        on_a_thread(AnyServer([answered(report)]).handle) as url,
        Ledger.open(tmp_path / "state.db") as ledger,
    ):
        entry = openai_entry(url, concurrency=1, revision="1", price=price)
        measure(plan_of(LedgerSample(1, 1, max_tokens=100), 1), entry, ledger)
        spent = ledger.spent("s", "c")
        assert spent.tokens == 62
        assert spent.usd == pytest.approx((10 * 1000 + 50 * 100 + 2 * 1000) / 1e6)


def test_a_usage_holds_counts_and_nothing_else() -> None:
    assert Usage(5.0, 2, 6, 3) == Usage(5, 2)  # type: ignore[arg-type]
    for value in ODD:
        count = Usage(value).prompt_tokens
        assert count is None or (type(count) is int and 0 <= count <= MOST_TOKENS)
        json.dumps(count)


@pytest.mark.parametrize("value", [*ODD, 10**6, 2**40])
def test_a_servers_count_of_a_prompt_is_one_that_the_prompt_can_have(value: object) -> None:
    prompt = Prompt("completion", text="one two")
    entry = openai_entry("http://127.0.0.1:9/v1")

    async def ask(path: str, parts: object) -> dict[str, Any]:
        return {"count": value}

    count = wire_format._count("tokenize", entry, prompt, ask)
    if value in (1, 12.0) and value is not True:
        assert asyncio.run(count).tokens == value
    else:
        with pytest.raises(TransportError, match="no token count"):
            asyncio.run(count)


def test_a_servers_window_is_a_count_of_tokens() -> None:
    for value in ODD:
        window = Identity({"server_max_model_len": value, "server_meta": {"n_ctx": value}})
        assert window.window_tokens is None or type(window.window_tokens) is int
