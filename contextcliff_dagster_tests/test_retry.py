"""Back-off and breaker, by their laws."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.retry import (
    Backoff,
    Breaker,
    TransientError,
    retry,
    retry_after_s,
    retry_blocking,
)


@pytest.fixture
def _no_backoff() -> None:
    """Waits are as they are in use here."""


@given(attempt=st.integers(1, 40), asked=st.none() | st.floats(-5, 1e6), seed=st.integers())
def test_a_wait_is_at_least_what_the_server_asks_and_never_endless(
    attempt: int, asked: float | None, seed: int
) -> None:
    backoff = Backoff()
    wait = backoff.wait_s(attempt, asked, random.Random(seed))
    assert (
        min(max(asked or 0, 0), backoff.longest_wait_s)
        <= wait
        <= backoff.longest_wait_s + backoff.cap_s
    )
    if not asked or asked < 0:
        assert wait <= 0.5 * 2 ** (attempt - 1)


def test_retry_after_is_read_in_all_its_forms() -> None:
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, now=40) == 60
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({}) is None


WAITS = (
    "1e308", "NaN", "inf", "-inf", "-5", "", " ", "9" * 400, "1e999", "0x10",
    "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 99 Foo 99999 99:99:99 GMT", "Mon, 1 Jan 0001",
)  # fmt: skip


@given(value=st.sampled_from(WAITS) | st.text() | st.floats().map(str))
def test_no_retry_after_waits_longer_than_the_longest_wait(value: str) -> None:
    for name in ("retry-after", "retry-after-ms"):
        asked = retry_after_s({name: value})
        wait = Backoff(base_s=0.0).wait_s(1, asked, random.Random(0))
        assert 0 <= wait <= Backoff().longest_wait_s


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("raised", "attempts"),
    [
        ([], 1),
        ([TransientError("x")] * 2, 3),
        ([TransientError("x")] * 3, 3),  # the third error is the last
        ([TransientError("x", status=429)] * 5, 6),  # being asked to slow down is no error
        ([ValueError("final")], 1),
    ],
)
def test_only_faults_that_pass_are_tried_again_and_waits_follow_the_policy(
    blocking: bool, raised: list[Exception], attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    monkeypatch.setattr("time.sleep", waits.append)
    left, made = list(raised), []

    def attempt() -> str:
        made.append(1)
        if left:
            raise left.pop()
        return "done"

    async def attempted() -> str:
        return attempt()

    def run() -> str:
        policy = Backoff(attempts=3)
        return (
            retry_blocking(attempt, policy) if blocking else asyncio.run(retry(attempted, policy))
        )

    if len(raised) >= attempts:
        with pytest.raises(type(raised[0])):
            run()
    else:
        assert run() == "done"
    assert (len(made), len(waits)) == (attempts, attempts - 1)
    assert all(0 <= wait <= 0.5 * 2**number for number, wait in enumerate(waits))


def test_only_failures_in_a_row_open_the_breaker() -> None:
    breaker = Breaker(3)
    for _ in range(5):
        breaker.failure("m", "x")
        breaker.failure("m", "x")
        breaker.success()
    breaker.failure("m", "x")
    breaker.failure("m", "x")
    with pytest.raises(EngineError, match="3 requests in a row"):
        breaker.failure("m", "x")
