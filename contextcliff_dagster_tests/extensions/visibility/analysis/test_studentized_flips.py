"""Flips within pairs: exact where labels mean nothing, and level where only their mean does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.statistics.rank_tests import sign_flip_p_value
from contextcliff_dagster.contracts.arrays import Floats
from contextcliff_dagster.extensions.visibility.analysis.effects import (
    ClusterMeans,
    studentized_flips,
)
from contextcliff_dagster_tests.support.examples import examples

ONE = np.zeros(1, np.int64)


def _p(change: Floats, clusters: int) -> float:
    cluster = np.arange(len(change)) % clusters
    stratum = np.zeros(clusters, np.int64)
    return studentized_flips(change, cluster, stratum, 199, np.random.default_rng(0))[0]


@example([0, 3, 0, 4, -3, -4], 2)  # means of -1 and 1, as far as fractions have an exact sum
@examples(50)
@given(st.lists(st.integers(-5, 5), min_size=4, max_size=10), st.integers(2, 4))
def test_signs_and_scale_change_nothing(change: list[int], clusters: int) -> None:
    given = np.array(change, float)
    p = _p(given, clusters)
    assert 0 < p <= 1
    assert _p(-given, clusters) == p
    assert _p(given * 0.01, clusters) == pytest.approx(p)


def test_p_values_are_uniform_where_labels_mean_nothing() -> None:
    rng = np.random.default_rng(1)
    drawn = [_p(rng.normal(size=12) ** 3, 3) for _ in range(400)]
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(drawn) <= level) == pytest.approx(level, abs=0.05)


def test_effects_of_whole_clusters_are_no_evidence() -> None:
    """Each cluster has an effect of its own; their mean is 0. Plain flips of pairs find it."""
    rng = np.random.default_rng(2)
    ours, plain = [], []
    for _ in range(300):
        change = np.repeat(rng.normal(size=6), 8) + 0.3 * rng.normal(size=48)
        cluster = np.repeat(np.arange(6), 8)
        zeros = np.zeros(6, np.int64)
        ours.append(studentized_flips(change, cluster, zeros, 199, rng)[0])
        plain.append(sign_flip_p_value(change, 199, rng)[0])
    assert np.mean(np.array(ours) <= 0.05) < 0.09
    assert np.mean(np.array(plain) <= 0.05) > 0.3


def test_strata_that_differ_widen_no_interval() -> None:
    values = np.array([0.5, 0.52, 0.48, 0.1, 0.12, 0.08])
    widths = [
        np.ptp(np.array(ClusterMeans(values, stratum).interval(0.95), float))
        for stratum in (np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, np.int64))
    ]
    assert widths[0] < 0.06 < 0.4 < widths[1]
    lonely = ClusterMeans(values, np.array([0, 0, 0, 1, 1, 2])).interval(0.95)
    assert np.ptp(np.array(lonely, float)) == pytest.approx(widths[1])


@examples(50)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.floats(0.5, 0.99))
def test_an_interval_holds_its_mean(values: list[float], confidence: float) -> None:
    means = ClusterMeans(np.array(values), np.zeros(len(values), np.int64))
    low, high = means.interval(confidence)
    assert low is not None
    assert high is not None
    assert -1 <= low <= means.mean <= high <= 1
    upper = means.upper(confidence, 0.5)
    assert upper is not None
    assert upper >= min(means.mean, 1.0)


def test_a_single_cluster_has_no_interval() -> None:
    alone = ClusterMeans(np.array([0.3]), ONE)
    assert alone.interval(0.95) == (None, None)
    assert alone.upper(0.95, 0.5) is None


def test_intervals_cover_the_mean_of_unequal_strata() -> None:
    rng = np.random.default_rng(4)
    stratum = np.repeat([0, 1, 2], 4)
    inside = []
    for _ in range(1000):
        values = np.array([0.2, -0.1, 0.0])[stratum] + 0.05 * rng.normal(size=12)
        low, high = ClusterMeans(values, stratum).interval(0.95)
        assert low is not None
        assert high is not None
        inside.append(low <= 0.1 / 3 <= high)
    assert 0.93 < np.mean(inside) < 0.975
