"""Back-off and breaker, by their laws."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.retry import Backoff, Breaker, retry_after_s


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
