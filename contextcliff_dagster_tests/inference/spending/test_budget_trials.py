"""A budget holds through errors, kills and several processes; a server's log is the judge.

A hundred trials: ``benchmarks/budget_trials.py``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.budget_trial import Trial, context, draw, run

COVERED = Trial(
    limit="usd",
    share=0.6,
    processes=2,
    concurrency=8,
    faults=0.2,
    kills=1,
    count_factor=1.0,
    own_count=True,
    seed=1,
)


def test_a_limit_is_not_exceeded_where_the_reservations_cover_the_bill(tmp_path: Path) -> None:
    result = run(COVERED, tmp_path, context())
    assert not result.broken, result
    assert result.ends["budget"] > 0
    assert 0 < result.billed <= result.limit == result.allowed


def test_a_server_that_bills_more_exceeds_it_by_no_more_than_what_is_stated(
    tmp_path: Path,
) -> None:
    result = run(replace(COVERED, count_factor=3.0, faults=0.0, kills=0), tmp_path, context())
    assert not result.broken, result
    assert result.limit < result.billed <= result.allowed


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_drawn_the_budget_keeps_to_what_is_stated(tmp_path: Path, seed: int) -> None:
    result = run(draw(random.Random(f"budget {seed}")), tmp_path, context())
    assert not result.broken, result
