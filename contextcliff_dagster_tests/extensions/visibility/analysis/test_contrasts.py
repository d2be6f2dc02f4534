"""Which levels are compared with which, and how many seeds a comparison needs."""

from __future__ import annotations

import numpy as np
import pytest

from contextcliff_dagster.analysis.contrast import studentized_flips, units_needed
from contextcliff_dagster.extensions.visibility.analysis.effects import (
    Changes,
    comparisons_of,
    ordered_levels,
    widest_comparisons,
)
from contextcliff_dagster.extensions.visibility.analysis.model import (
    POWER,
    Components,
    components_of,
)
from contextcliff_dagster_tests.extensions.visibility.analysis.planted_runs import planted_section


def test_levels_are_compared_with_the_one_that_shows_less() -> None:
    levels = planted_section(
        task=["shown", "placebo", "hidden"],
        metric=["placebo", "shown"],
        bounds="shown",
        history=[10, 0, 5],
        base=["best", "last"],
        start=["high", "low"],
    ).levels
    made = [(one.axis, one.level, one.reference, one.contrast) for one in comparisons_of(levels)]
    assert made == [
        ("task", "shown", "hidden", "shown"),
        ("task", "placebo", "hidden", "length"),
        ("task", "shown", "placebo", "content"),
        ("metric", "shown", "placebo", "content"),
        ("history", "5", "0", "level"),
        ("history", "10", "0", "level"),
        ("base", "best", "last", "level"),
        ("start", "high", "low", "level"),
    ]
    assert ordered_levels(levels)["history"] == ["0", "5", "10"]
    widest = {one.axis: (one.reference, one.level) for one in widest_comparisons(levels)}
    assert widest["task"] == ("hidden", "shown")
    assert widest["history"] == ("0", "10")
    assert "bounds" not in widest


@pytest.mark.parametrize(
    ("benchmarks", "components"),
    [
        (1, Components(0.0, 0.3, 8.0)),
        (3, Components(0.1, 0.3, 4.0)),
        (2, Components(0.2, None, 1.0)),
    ],
)
def test_the_seeds_of_the_plan_have_its_power(benchmarks: int, components: Components) -> None:
    effect, level = 0.1, 0.05
    seeds = units_needed(
        effect, components.variance, level, POWER, strata=benchmarks, pairs=components.pairs
    )
    assert seeds is not None
    clusters, pairs = benchmarks * seeds, int(components.pairs)
    cluster = np.repeat(np.arange(clusters), pairs)
    stratum = np.arange(clusters) // seeds
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        change = effect + components.seed * rng.normal(size=clusters)[cluster]
        change += (components.pair or 0.0) * rng.normal(size=len(cluster))
        found += studentized_flips(change, cluster, stratum, 299, rng)[0] <= level
    assert found / 300 == pytest.approx(POWER, abs=0.07)


def test_components_are_separated() -> None:
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(400), 8)
    change = 0.2 * rng.normal(size=400)[cluster] + 0.4 * rng.normal(size=3200)
    changes = Changes(change, np.zeros(3200), cluster, np.zeros(400, np.int64))
    found = components_of(changes)
    assert found is not None
    assert found.seed == pytest.approx(0.2, abs=0.03)
    assert found.pair == pytest.approx(0.4, abs=0.02)
    single = Changes(change[:2], np.zeros(2), np.arange(2), np.zeros(2, np.int64))
    alone = components_of(single)
    assert alone is not None
    assert alone.pair is None
