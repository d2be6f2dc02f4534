"""Clusters of pairs: their flips are level, their intervals cover, plans have their power."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from contextcliff_dagster.analysis.contrast import (
    ClusterMeans,
    sign_flip_p_value,
    studentized_flips,
    units_needed,
)
from contextcliff_dagster.contracts.arrays import Floats
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


@given(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=30))
def test_the_upper_limit_is_students_and_a_little_more(changes: list[float]) -> None:
    change = np.array(changes)
    means = ClusterMeans.of(change, np.arange(len(change)))
    assert means is not None
    upper = means.upper(0.95, 0.5)
    assert upper is not None
    sem = change.std(ddof=1) / len(change) ** 0.5
    student = change.mean() + stats.t.ppf(0.95, len(change) - 1) * sem
    assert upper >= min(student, 1.0) - 1e-9
    assert upper > change.mean()


def test_pairs_count_alike_in_clusters_of_unequal_size() -> None:
    """The mean is the pairs' own, its error that of a ratio estimate (Cochran 1977, 2.11)."""
    rng = np.random.default_rng(5)
    cluster = np.repeat(np.arange(8), rng.integers(1, 9, 8))
    values = rng.normal(size=len(cluster))
    means = ClusterMeans.of(np.append(values, np.nan), np.append(cluster, 0))
    assert means is not None
    assert means.mean == pytest.approx(values.mean())
    sums = np.bincount(cluster, weights=values - values.mean())
    error = np.sqrt((sums**2).sum() * 8 / 7) / len(values)
    assert means.standard_error == pytest.approx(error)
    assert ClusterMeans.of(np.full(3, np.nan), np.arange(3)) is None


@pytest.mark.parametrize(("strata", "two_sided"), [(1, True), (1, False), (3, True)])
def test_units_needed_have_the_power_that_is_wished(strata: int, two_sided: bool) -> None:
    rng = np.random.default_rng(6)
    needed = units_needed(0.1, 0.04, 0.05, 0.8, strata=strata, two_sided=two_sided)
    assert needed is not None
    drawn = rng.normal(0.1, 0.2, size=(4_000, strata, needed))
    error = np.sqrt(drawn.var(axis=2, ddof=1).mean(axis=1) / (strata * needed))
    critical = stats.t.ppf(0.975 if two_sided else 0.95, strata * (needed - 1))
    assert (drawn.mean(axis=(1, 2)) / error > critical).mean() == pytest.approx(0.8, abs=0.03)


def test_no_fewer_units_are_needed_than_can_be_significant() -> None:
    assert units_needed(1.0, 1e-6, 0.05, 0.8) == 6  # 2 of 2^6 flips are as extreme: .031
    assert units_needed(1.0, 1e-6, 0.05, 0.8, two_sided=False) == 5
    assert units_needed(1e-4, 1.0, 0.05, 0.8) is None


@given(st.floats(0.1, 1.0), st.floats(1e-6, 1.0), st.floats(1e-4, 0.1))
def test_a_stricter_level_needs_more_units(effect: float, variance: float, level: float) -> None:
    needed = [units_needed(effect, variance, of, 0.8) for of in (level, level / 9)]
    assert needed[0] is not None
    assert needed[1] is not None
    assert needed[0] <= needed[1]
