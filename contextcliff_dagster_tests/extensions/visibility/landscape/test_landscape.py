"""Tabulated landscapes: points, acceptance, regret, starts, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import DataError, StoreError
from contextcliff_dagster.extensions.visibility.kept_landscapes import (
    accept,
    landscape_file,
    read_landscape,
    write_landscape,
)
from contextcliff_dagster.extensions.visibility.landscape import (
    BOUNDS,
    Landscape,
    fingerprint,
    members,
    normalised_regret,
    regrets,
    sobol_configs,
    start_of,
    tabulate,
)
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Data, Number, Space
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.landscapes import landscape_of, objective_of
from contextcliff_dagster_tests.extensions.visibility.spaces import SPACE, spaces

LINE = Space((Number("x", 0, 1), Number("rate", 0.01, 100, log=True)), {"x": 0.5, "rate": 1.0})
FINITE = st.floats(-1e6, 1e6)


@given(st.data())
def test_points_are_within_the_space_and_begin_alike(data: st.DataObject) -> None:
    space, seed = data.draw(spaces()), data.draw(st.integers(0, 1000))
    points = sobol_configs(space, 9, seed)
    assert points[:5] == sobol_configs(space, 5, seed)
    for one in points:
        assert ((space.positions(one) >= 0) & (space.positions(one) <= 1)).all()


def test_points_are_even_on_a_log_scale() -> None:
    rates = np.array([float(one["rate"]) for one in sobol_configs(LINE, 64, 3)])
    assert [int(((rates >= low) & (rates < 10 * low)).sum()) for low in (0.01, 0.1, 1, 10)] == (
        [16] * 4
    )


@given(st.lists(FINITE | st.just(float("nan")), min_size=1), FINITE, FINITE)
def test_regret_is_within_0_and_1(scores: list[float], best: float, worst: float) -> None:
    regret = normalised_regret(scores, best, worst)
    assert ((regret >= 0) & (regret <= 1)).all()
    if best != worst:
        assert normalised_regret([best, worst], best, worst).tolist() == [0, 1]


@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_regret_does_not_depend_on_the_unit_of_the_score(scale: float, shift: float) -> None:
    scores = np.array([0.3, 0.9, 0.55])
    moved = normalised_regret(scores * scale + shift, 0.9 * scale + shift, 0.3 * scale + shift)
    assert moved == pytest.approx(normalised_regret(scores, 0.9, 0.3))
    down = normalised_regret(-scores, -0.9, -0.3)
    assert down == pytest.approx(normalised_regret(scores, 0.9, 0.3)), "lower is better"


def test_noise_alone_is_no_landscape_however_many_points() -> None:
    counts = 0
    for seed in range(200):
        judged = accept(landscape_of(LINE, lambda at: 0.8, noise=0.2, seed=seed))
        counts += judged.counts
    # The best of 64 noisy means is .2 above the worst; what counts must not be that.
    assert counts <= 4


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_slope_beyond_the_noise_counts(higher_is_better: bool) -> None:
    judged = accept(
        landscape_of(LINE, lambda at: float(at[0]), noise=0.1, higher_is_better=higher_is_better)
    )
    assert judged.counts
    assert judged.spread == pytest.approx(1, abs=0.15)


def test_what_is_refused_says_why() -> None:
    flat = accept(landscape_of(LINE, lambda at: 0.03 * float(at[0]), noise=0.001))
    assert flat.refused == (f"its scores spread by {flat.spread:.3f}, less than 0.05",)
    noisy = accept(landscape_of(LINE, lambda at: 0.1 * float(at[0]), noise=1.0))
    assert any("standard errors" in reason for reason in noisy.refused)
    lost = landscape_of(LINE, lambda at: float(at[0]))
    lost.test[1:] = np.nan
    assert accept(lost).refused == ("fewer than two configurations could be trained",)


def test_the_spread_of_errors_is_in_shares_of_a_constant_prediction() -> None:
    of_dollars = landscape_of(LINE, lambda at: 1e5 * float(at[0]), higher_is_better=False)
    assert accept(of_dollars).spread == pytest.approx(1e5, rel=0.05)
    assert accept(replace(of_dollars, unit=1e6)).spread == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_starts_are_as_good_as_their_stratum(higher_is_better: bool) -> None:
    landscape = landscape_of(
        LINE, lambda at: float(at[1]), noise=0.01, higher_is_better=higher_is_better
    )
    worse = "low", "neutral", "high"
    scores = []
    for stratum in worse:
        low, high = BOUNDS[stratum]
        drawn = [start_of(landscape, stratum, seed) for seed in range(30)]
        assert all(low <= one.regret <= high for one in drawn)
        assert len({one.regret for one in drawn}) > 1
        assert start_of(landscape, stratum, 5) == start_of(landscape, stratum, 5)
        scores.append(landscape.means[landscape.configs.index(drawn[0].config)])
    assert scores == sorted(scores, reverse=not higher_is_better)


def test_a_landscape_without_a_stratum_has_no_starts() -> None:
    steep = landscape_of(LINE, lambda at: float(at[0] > 0.5))
    with pytest.raises(DataError, match="none with the regret of neutral; tabulate more"):
        start_of(steep, "high", 0)
    with pytest.raises(DataError, match="too few"):
        start_of(landscape_of(LINE, lambda at: float(at[0]), points=3), "high", 0)


def test_a_failed_configuration_is_no_start_and_no_extreme() -> None:
    landscape = landscape_of(LINE, lambda at: float(at[0]))
    best = int(np.argmax(landscape.means))
    landscape = landscape_of(LINE, lambda at: float(at[0]))
    landscape.test[best, 3] = np.nan
    assert np.isnan(regrets(landscape)[best])
    assert landscape.best < 1
    assert best not in members(landscape, "high")


@given(st.integers(0, 63), st.integers(0, 19))
def test_a_landscape_answers_for_its_configurations_and_those_near(number: int, split: int) -> None:
    landscape = landscape_of(SPACE, lambda at: float(at.sum()), noise=0.1)
    scores = objective_of(landscape, SPACE, split)
    config = landscape.configs[number]
    known = landscape.validation[number, split], landscape.test[number, split]
    assert scores(config) == known
    assert scores({**config, "shift": float(config["shift"]) + 1e-7}) == known


def test_a_tabulated_landscape_holds_what_training_gives(tmp_path: Path) -> None:
    task, store = task_named("wine"), Store(tmp_path)
    assert task.load
    data, done = task.load(), []
    landscape = tabulate(
        task, data, points=5, splits=range(4), on_progress=lambda *of: done.append(of)
    )
    assert done[-1] == (20, 20)
    objective = task.objective(data, 2)
    for row, config in enumerate(landscape.configs):
        assert objective(config) == (landscape.validation[row, 2], landscape.test[row, 2])
    path = write_landscape(store, landscape)
    again = read_landscape(store, "wine", landscape.made_of)
    assert again is not None
    assert again.configs == landscape.configs
    assert (again.test == landscape.test).all()
    assert (again.validation == landscape.validation).all()
    assert path == landscape_file(store, "wine", landscape.made_of)


def test_a_configuration_that_cannot_be_trained_has_no_score(tmp_path: Path) -> None:
    task = task_named("wine")
    assert task.load
    few = tabulate(task, task.load(), points=16, splits=range(4))
    failed = np.array([int(config["n_neighbors"]) > 20 for config in few.configs])
    data = task.load()
    small = Data(data.features[::5], data.targets[::5])  # 22 training rows: fewer than neighbours
    table = tabulate(task, small, points=16, splits=range(4))
    assert np.isnan(table.test[failed]).any()
    kept = read_landscape(Store(tmp_path), "wine", _written(tmp_path, table))
    assert kept is not None
    np.testing.assert_array_equal(kept.test, table.test)


def _written(root: Path, landscape: Landscape) -> str:
    write_landscape(Store(root), landscape)
    return landscape.made_of


def test_the_fingerprint_changes_with_all_that_scores_depend_on() -> None:
    task = task_named("wine")
    assert task.load
    data = task.load()
    first = fingerprint(task, data, 8, range(4), 0)
    assert first == fingerprint(task, task.load(), 8, range(4), 0)
    changed = Data(data.features + 1e-9, data.targets)
    others = {
        fingerprint(task, changed, 8, range(4), 0),
        fingerprint(task, data, 9, range(4), 0),
        fingerprint(task, data, 8, range(5), 0),
        fingerprint(task, data, 8, range(4), 1),
        fingerprint(replace(task, space=LINE), data, 8, range(4), 0),
    }
    assert len(others) == 5
    assert first not in others


@pytest.mark.parametrize("damage", ["cut", "a figure", "version", "list"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    store, landscape = Store(tmp_path), landscape_of(LINE, lambda at: float(at[0]), points=4)
    assert read_landscape(store, "planted", landscape.made_of) is None
    path = write_landscape(store, landscape)
    text = path.read_text()
    content = json.loads(text)
    if damage == "a figure":
        content["test"][0][0] += 1e-9
    elif damage == "version":
        content["version"] += 1
    else:
        content = [content]
    path.chmod(0o600)
    path.write_text(text[:-9] if damage == "cut" else json.dumps(content))
    with pytest.raises(StoreError, match="damaged or of another version; delete it"):
        read_landscape(store, "planted", landscape.made_of)
