"""Numbers and names as sentences hold them."""

from __future__ import annotations

import pytest

from contextcliff_dagster.reporting.wording import count, named


def test_one_has_the_singular() -> None:
    assert named("campaign", ["a"]) == "campaign a"
    assert named("campaign", ("a", "b")) == "campaigns a, b"


@pytest.mark.parametrize(
    ("value", "words"),
    [(1, "1 call"), (0, "0 calls"), (1200, "1,200 calls"), (None, "an unknown number of calls")],
)
def test_a_count_agrees_with_its_noun(value: int | None, words: str) -> None:
    assert count(value, "call") == words
