"""The area from pairs within strata: against all pairs, and laws that hold for any data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.statistics.rank_tests import permuted_auc, stratified_auc


def _by_pairs(predictor: np.ndarray, positive: np.ndarray, stratum: np.ndarray) -> float:
    won = [
        0.5 + 0.5 * np.sign(predictor[a] - predictor[b])
        for a, b in itertools.product(range(len(predictor)), repeat=2)
        if positive[a] and not positive[b] and stratum[a] == stratum[b]
    ]
    return float(np.mean(won))


@st.composite
def data(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    strata = draw(st.integers(1, 4))
    rows = [(one, kind) for one in range(strata) for kind in (False, True)]
    rows += draw(st.lists(st.tuples(st.integers(0, strata - 1), st.booleans()), max_size=30))
    stratum = np.array([one for one, _ in rows])
    positive = np.array([kind for _, kind in rows])
    values = draw(st.lists(st.integers(0, 6), min_size=len(rows), max_size=len(rows)))
    return np.array(values, np.float64), positive, stratum, np.arange(len(rows))


@given(data())
def test_the_area_is_that_of_the_pairs(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    predictor, positive, stratum, cluster = drawn
    value, low, high = stratified_auc(predictor, positive, stratum, cluster, 0.95)
    assert value == pytest.approx(_by_pairs(predictor, positive, stratum))
    assert 0.0 <= low <= value + 1e-9
    assert value - 1e-9 <= high <= 1.0
    turned, other_low, other_high = stratified_auc(-predictor, positive, stratum, cluster, 0.95)
    assert (turned, other_low, other_high) == pytest.approx((1 - value, 1 - high, 1 - low))


@given(data(), st.integers(-50, 50))
def test_what_differs_between_strata_alone_changes_nothing(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], step: int
) -> None:
    predictor, positive, stratum, cluster = drawn
    plain = stratified_auc(predictor, positive, stratum, cluster, 0.95)
    shifted = stratified_auc(predictor + step * stratum, positive, stratum, cluster, 0.95)
    assert shifted == pytest.approx(plain)
    p_values = [
        permuted_auc(values, positive, stratum, cluster, 99, np.random.default_rng(0))
        for values in (predictor, predictor + step * stratum)
    ]
    assert p_values[0] == p_values[1]


def test_a_planted_difference_is_found_and_copies_of_documents_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    positive = rng.random(200) < 0.4
    predictor = rng.normal(size=200) + positive
    stratum, cluster = np.arange(200) // 20, np.arange(200)
    value, low, high = stratified_auc(predictor, positive, stratum, cluster, 0.95)
    assert low < 0.76 < high
    assert permuted_auc(predictor, positive, stratum, cluster, 499, rng) <= 0.01
    four = [np.repeat(of, 4) for of in (predictor, positive, stratum, cluster)]
    same, copied_low, copied_high = stratified_auc(*four, 0.95)
    assert same == pytest.approx(value)
    assert copied_high - copied_low == pytest.approx(high - low, rel=0.01)


def test_documents_exchange_whole() -> None:
    """Eight copies of each of six documents are no 48 observations."""
    document = np.repeat(np.arange(6), 8)
    positive = document >= 3
    predictor = document.astype(np.float64)
    zeros = np.zeros(48, np.int64)
    p_value = permuted_auc(predictor, positive, zeros, document, 999, np.random.default_rng(0))
    assert 0.05 < p_value < 0.2  # 2 of 20 divisions of six documents are as far
