"""Looking again: a longer cap than an earlier one takes more certainty, a shorter one none."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.cliff import (
    LOOK_SHARE,
    Finding,
    cap_after_looks,
    cap_of,
    caps_at,
)
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.statistics.falling_curve import fit_falling_curve
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Look

SETTINGS = AnalysisSettings()


@cache
def finding(seed: int = 0) -> Finding:
    """Of a ramp, so that the cap depends on the certainty."""
    rng = np.random.default_rng(seed)
    lengths = np.arange(100, 20_100, 100)
    mean = np.clip(1.1 - np.arange(200) / 160.0, 0.1, 0.9)
    scores = (rng.random(200) < mean).astype(np.float64)
    curve = fit_falling_curve(Documents(lengths, np.ones(200), scores, True), 0.15)
    return Finding(Verdict.CLIFF, curve=curve)


def look(cap: int | None, per_bin: int = 5) -> Look:
    return Look(per_bin, 10 * per_bin, cap)


def test_the_first_look_is_the_usual_cap() -> None:
    assert cap_after_looks(finding(), SETTINGS, []) == cap_of(finding(), SETTINGS)


@given(st.lists(st.none() | st.integers(1, 25_000), min_size=1, max_size=4), st.integers(0, 3))
def test_beyond_every_earlier_cap_more_certainty_is_needed(
    earlier: list[int | None], seed: int
) -> None:
    of = finding(seed)
    usual, strict = (cap_of(of, SETTINGS, share).tokens or 0 for share in (1.0, LOOK_SHARE))
    assert strict <= usual
    cap = cap_after_looks(of, SETTINGS, [look(cap) for cap in earlier])
    tokens = cap.tokens or 0
    longest = max(before or 0 for before in earlier)
    assert strict <= tokens <= usual
    # What is longer than all before is as sure as the stricter rule asks.
    assert tokens <= max(longest, strict)
    # An earlier cap that these examples bear is kept.
    if longest >= usual:
        assert tokens == usual
    if tokens < usual:
        assert "before, at fewer examples" in cap.reason
        assert f"{usual:,}" in cap.reason


@given(st.integers(1, 25_000))
def test_caps_stay_nested_over_tolerances(earlier: int) -> None:
    looks = [look(earlier)]
    caps = [c.tokens or 0 for _, c in caps_at(finding(), (0.1, 0.2, 0.3, 0.4), SETTINGS, looks)]
    assert caps == sorted(caps)
    assert caps[2] == (cap_after_looks(finding(), SETTINGS, looks).tokens or 0)


def test_a_cap_that_only_one_look_bears_is_none() -> None:
    of = finding()
    usual, strict = (cap_of(of, SETTINGS, share).tokens for share in (1.0, LOOK_SHARE))
    assert usual is not None
    assert strict is not None
    assert strict < usual
    assert cap_after_looks(of, SETTINGS, [look(None)]).tokens == strict


@pytest.mark.parametrize("verdict", [Verdict.FLOOR, Verdict.INSUFFICIENT_DATA])
def test_where_no_cap_can_be_nothing_changes(verdict: Verdict) -> None:
    bare = Finding(verdict, "Too few.")
    assert cap_after_looks(bare, SETTINGS, [look(500)]) == cap_of(bare, SETTINGS)
