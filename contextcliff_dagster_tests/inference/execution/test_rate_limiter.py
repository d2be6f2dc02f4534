"""How many requests at once and how many a minute: laws in virtual time, and a real server."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.inference.execution.call_sender import AdaptiveLimit, Bucket, RateLimiter
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.retry import AttemptBudget, Backoff, TransientError
from contextcliff_dagster_tests.support.records.calls import (
    LedgerSample,
    crowded_server,
    openai_entry,
    plan_of,
    read_log,
)
from contextcliff_dagster_tests.support.virtual_time import run_virtually

HERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def _no_backoff() -> None:
    """Waits are as they are in use here."""


@given(most=st.integers(1, 512), events=st.lists(st.sampled_from("aas"), max_size=400))
def test_the_limit_stays_between_one_and_the_most_and_halves_once_a_generation(
    most: int, events: list[str]
) -> None:
    limit = AdaptiveLimit(most)
    for event in events:
        before, generation = limit.now, limit.generation
        if event == "a":
            limit.answered(in_flight=before)
            assert before <= limit.now <= before + 1
        else:
            limit.slow_down(generation)
            assert limit.now == max(1, before // 2)
            limit.slow_down(generation)  # of a request that was under way already
            assert limit.now == max(1, before // 2)
        assert 1 <= limit.now <= most


@given(most=st.integers(2, 64))
def test_a_round_of_answers_adds_one_and_an_idle_limit_does_not_grow(most: int) -> None:
    limit = AdaptiveLimit(most)
    limit.slow_down(limit.generation)
    low = limit.now
    for _ in range(10 * most):
        limit.answered(in_flight=low - 1)
    assert limit.now == low
    for _ in range(low):
        limit.answered(in_flight=low)
    assert limit.now == low + 1


async def _crowd(most: int, room: int, calls: int, seed: int) -> dict[str, Any]:
    """A server with ``room`` seats that answers 429 to whom it cannot seat."""
    loop, rng = asyncio.get_running_loop(), random.Random(seed)
    limiter = RateLimiter(openai_entry(HERE, concurrency=most), clock=loop.time)
    seen: dict[str, Any] = {"refused": [], "most": 0, "done": 0, "seated": 0}
    todo = iter(range(calls))

    async def worker() -> None:
        for _ in todo:
            while True:
                generation = await limiter.enter(1)
                assert generation is not None
                seen["most"] = max(seen["most"], limiter.in_flight)
                assert limiter.in_flight <= most
                full = seen["seated"] >= room
                seen["seated"] += not full
                await asyncio.sleep(0.01 if full else rng.uniform(0.5, 1.5))
                seen["seated"] -= not full
                if full:
                    limiter.limit.slow_down(generation)
                    seen["refused"].append(loop.time())
                else:
                    limiter.answered()
                    seen["done"] += 1
                limiter.leave()
                if not full:
                    break
                await asyncio.sleep(rng.uniform(0, 0.5))

    await asyncio.gather(*(worker() for _ in range(most)))
    return {**seen, "seconds": loop.time(), "left": limiter.in_flight}


@given(most=st.integers(1, 48), room=st.integers(1, 48), seed=st.integers(0, 99))
def test_a_crowded_server_is_filled_and_seldom_overrun(most: int, room: int, seed: int) -> None:
    calls = 40 * min(most, room)
    seen = run_virtually(_crowd(most, room, calls, seed))
    assert (seen["done"], seen["left"]) == (calls, 0)
    if most <= room:
        assert not seen["refused"]
        return
    # The fastest possible: all seats taken for 40 rounds of a second each.
    assert seen["seconds"] <= 2.2 * 40
    # After the first rush a refusal comes once in a round of answers at most: of one seat, once in
    # an answer.
    late = [at for at in seen["refused"] if at > 10]
    assert len(late) <= 2 * calls / (1 + room)


@given(
    per_minute=st.floats(1, 1e6),
    takes=st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 5)), min_size=1, max_size=60),
)
def test_no_minute_sees_more_than_the_limit_and_one_burst(
    per_minute: float, takes: list[tuple[float, float]]
) -> None:
    """Takes of up to twice what a minute allows, each as soon as it may, after pauses."""
    now = 0.0
    bucket = Bucket(per_minute, now)
    taken: list[tuple[float, float]] = []
    for share, pause in takes:
        now += pause
        amount = share * per_minute
        if (wait_s := bucket.wait_s(amount, now)) > 0:
            assert bucket.wait_s(amount, now + wait_s * 0.999) > 0, "no longer than needed"
            now += wait_s
        assert bucket.wait_s(amount, now) == 0
        bucket.take(amount, now)
        taken.append((now, amount))
    largest = max(amount for _, amount in taken)
    for begin, _ in taken:
        minute = sum(amount for at, amount in taken if begin <= at < begin + 60)
        assert minute <= (per_minute + max(bucket.size, largest)) * (1 + 1e-6)


async def _paced(tokens: list[int], **limits: float) -> list[float]:
    loop = asyncio.get_running_loop()
    limiter = RateLimiter(openai_entry(HERE, concurrency=64, **limits), clock=loop.time)
    at: list[float] = []

    async def call(mine: int) -> None:
        assert await limiter.enter(mine)
        at.append(loop.time())
        limiter.leave()

    await asyncio.gather(*map(call, tokens))
    return at


def test_requests_and_tokens_a_minute_are_kept_to_whichever_binds() -> None:
    at = run_virtually(_paced([10] * 130, requests_per_minute=60))
    assert at[-1] == pytest.approx(125)  # five at once, then one a second
    at = run_virtually(_paced([3000] * 21, tokens_per_minute=60_000))
    assert at[-1] == pytest.approx(58)  # 63,000 tokens at 1,000 a second, 5,000 of them ahead
    at = run_virtually(_paced([3000] * 21, tokens_per_minute=60_000, requests_per_minute=6))
    assert at[-1] == pytest.approx(200)


def test_a_call_larger_than_a_minute_allows_is_sent_and_then_owed() -> None:
    at = run_virtually(_paced([120_000, 10], tokens_per_minute=60_000))
    assert at[0] == 0
    assert at[1] == pytest.approx(115.01)


def test_who_waits_is_let_in_in_order_and_told_when_the_run_is_halted() -> None:
    async def scene() -> None:
        limiter = RateLimiter(openai_entry(HERE, concurrency=1))
        assert await limiter.enter(1) == 1
        waiting = [asyncio.ensure_future(limiter.enter(1)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        limiter.leave()
        assert await waiting[1] == 1
        limiter.close()
        assert await waiting[2] is None
        assert await limiter.enter(1) is None
        limiter.leave()
        assert limiter.in_flight == 0

    run_virtually(scene())


def test_a_turn_granted_to_a_call_that_was_given_up_is_handed_on() -> None:
    async def scene() -> None:
        limiter = RateLimiter(openai_entry(HERE, concurrency=1))
        assert await limiter.enter(1) == 1
        late = asyncio.ensure_future(limiter.enter(1))
        await asyncio.sleep(0)
        limiter.leave()  # grants it to `late`, which has not run since
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert await limiter.enter(1) == 1

    run_virtually(scene())


@given(
    attempts=st.integers(1, 8),
    deadline=st.floats(1, 1e4),
    took=st.floats(0, 50),
    asked=st.none() | st.floats(0, 500),
    slow=st.lists(st.booleans(), min_size=60, max_size=60),
    seed=st.integers(0, 99),
)
def test_attempts_are_bounded_in_count_and_in_time(
    attempts: int, deadline: float, took: float, asked: float | None, slow: list[bool], seed: int
) -> None:
    budget = AttemptBudget(Backoff(attempts=attempts, deadline_s=deadline))
    spent, faults, slow_downs = 0.0, 0, 0
    for slow_down in slow:
        assert budget.left_s == pytest.approx(max(0.0, deadline - spent))
        budget.sent += 1
        faults, slow_downs = faults + (not slow_down), slow_downs + slow_down
        error = TransientError("x", status=429 if slow_down else 500, retry_after_s=asked)
        wait_s = budget.wait_after(error, took, random.Random(seed))
        if wait_s is None:
            break
        spent += took + wait_s
        assert spent < deadline
    else:
        pytest.fail("no end after 60 attempts")
    assert f"asked to wait {slow_downs} of at most" in budget.told
    assert faults <= attempts
    assert slow_downs <= Backoff().slow_downs + 1


def test_a_server_with_three_seats_answers_every_call_of_sixteen_workers(tmp_path: Path) -> None:
    sample, log = LedgerSample(1, 60, max_tokens=200), tmp_path / "log.jsonl"
    with crowded_server(3, log) as url, Ledger.open(tmp_path / "state.db") as ledger:
        entry = openai_entry(url, concurrency=16)
        summary = measure(plan_of(sample, 60), entry, ledger)
    said = [line["behaviour"] for line in read_log(log)]
    assert (summary.answered, said.count("ok")) == (60, 60)
    assert summary.retries == said.count("429") > 0
    assert 1 <= summary.concurrency < 16
    # Whoever was refused at first comes back a few at a time, not sixteen at once.
    assert said[len(said) // 2 :].count("429") < len(said) // 4
