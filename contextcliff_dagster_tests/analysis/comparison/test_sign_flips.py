"""Sign flips are held against brute force, Holm's adjustment against its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from contextcliff_dagster.analysis.contrast import sign_flip_p_value
from contextcliff_dagster.analysis.statistics.rank_tests import holm

whole = st.lists(st.integers(-4, 4), max_size=10).map(np.array)
broken = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), max_size=9).map(np.array)
chances = st.lists(st.none() | st.floats(0, 1), max_size=12)


def over_all_signs(change: np.ndarray) -> float:
    signs = np.array(list(product((-1.0, 1.0), repeat=len(change))))
    return float((np.abs(signs @ change) >= abs(change.sum()) - 1e-9).mean())


@given(whole | broken)
def test_a_sign_flip_p_value_is_the_share_of_all_signs(change: np.ndarray) -> None:
    change = change.astype(np.float64)
    p_value, exact = sign_flip_p_value(change, 99, np.random.default_rng(0))
    assert exact
    assert p_value == pytest.approx(over_all_signs(change), abs=1e-12)
    assert sign_flip_p_value(-change, 99, np.random.default_rng(0))[0] == p_value


def test_many_broken_differences_are_drawn_and_never_give_zero() -> None:
    change = np.linspace(0.101, 0.9, 40)
    p_value, exact = sign_flip_p_value(change, 999, np.random.default_rng(1))
    assert not exact
    assert p_value == 1 / 1000
    mixed = change * np.where(np.arange(40) % 2, 1, -1)
    drawn, _ = sign_flip_p_value(mixed, 20_000, np.random.default_rng(1))
    known = stats.norm.sf(abs(mixed.sum()) / np.sqrt((mixed**2).sum())) * 2
    assert drawn == pytest.approx(known, abs=0.02)


@given(whole | broken)
def test_one_sided_only_sums_as_large_count(change: np.ndarray) -> None:
    change = change.astype(np.float64)
    signs = np.array(list(product((-1.0, 1.0), repeat=len(change))))
    share = float((signs @ change >= change.sum() - 1e-9).mean())
    p_value, exact = sign_flip_p_value(change, 99, np.random.default_rng(0), one_sided=True)
    assert exact
    assert p_value == pytest.approx(share, abs=1e-12)


def test_twenty_differences_are_still_exact_and_drawn_ones_agree() -> None:
    change = np.append(np.linspace(-0.613, 0.83, 20), 1e-5)
    exact, is_exact = sign_flip_p_value(change[:-1], 9, np.random.default_rng(0), one_sided=True)
    assert is_exact
    drawn, is_exact = sign_flip_p_value(change, 40_000, np.random.default_rng(0), one_sided=True)
    assert not is_exact
    assert drawn == pytest.approx(exact, abs=0.01)


@given(chances)
def test_holm_keeps_the_order_and_only_raises(p_values: list[float | None]) -> None:
    adjusted = holm(p_values)
    known = [(p, q) for p, q in zip(p_values, adjusted, strict=True) if p is not None]
    assert [p is None for p in p_values] == [q is None for q in adjusted]
    for p, q in known:
        assert q is not None
        assert p <= q <= 1.0
    assert sorted(known) == sorted(known, key=lambda pair: (pair[0], pair[1]))
    least = min((p for p, _ in known), default=None)
    if least is not None:
        smallest = min(q for _, q in known if q is not None)
        assert smallest == pytest.approx(min(least * len(known), 1.0))
