"""Splits, scores, and a configuration trained on them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.extensions.visibility.tasks.catalogue import (
    BUNDLED,
    TASKS,
    load_data,
    task_named,
)
from contextcliff_dagster.extensions.visibility.tasks.task import (
    ACCURACY,
    LOG_LOSS,
    MEAN_AUC,
    RMSE,
    RMSLE,
    Data,
    Task,
    split_rows,
)
from contextcliff_dagster.store import Store


@given(st.integers(5, 400), st.integers(0, 2**32 - 1))
def test_a_seed_gives_one_split_of_all_rows(rows: int, seed: int) -> None:
    one, other = split_rows(rows, seed), split_rows(rows, seed)
    parts = (one.train, one.validation, one.test)
    assert sorted(np.concatenate(parts)) == list(range(rows))
    for a, b in zip(parts, (other.train, other.validation, other.test), strict=True):
        assert (a == b).all()
    assert len(one.validation) == len(one.test) == round(rows / 5)


@given(st.integers(2, 5), st.integers(10, 60), st.integers(0, 1000))
def test_each_part_has_every_class_in_its_share(kinds: int, each: int, seed: int) -> None:
    classes = np.repeat(np.arange(kinds), each)
    split = split_rows(len(classes), seed, classes)
    for part in (split.validation, split.test):
        counts = np.bincount(classes[part], minlength=kinds)
        assert np.abs(counts - each / 5).max() <= 1.5


def test_another_seed_gives_another_split() -> None:
    assert len({tuple(split_rows(100, seed).test) for seed in range(20)}) == 20


@pytest.mark.parametrize("classes", [[0, 1], [0, 0, 1, 1, 1, 1, 1, 1, 1, 1], range(30)])
def test_too_few_rows_of_a_class_are_refused(classes: list[int]) -> None:
    with pytest.raises(DataError, match="cannot be split into"):
        split_rows(len(classes), 0, np.array(classes))
    with pytest.raises(DataError, match="cannot be split into"):
        split_rows(2, 0)


def test_scores_by_hand() -> None:
    assert ACCURACY.of(np.array([1, 2, 3, 3]), np.array([1, 2, 3, 1])) == 0.75
    assert RMSE.of(np.array([0.0, 0.0]), np.array([3.0, 4.0])) == pytest.approx(12.5**0.5)
    assert RMSLE.of(np.array([0.0]), np.array([-5.0])) == 0, "predictions are clipped at 0"
    assert RMSLE.of(np.array([np.e - 1]), np.array([0.0])) == pytest.approx(1)
    assert LOG_LOSS.of(np.array([0, 1]), np.array([[0.5, 0.5], [0.75, 0.25]])) == pytest.approx(
        1.5 * np.log(2)
    )
    labels = np.array([[1, 0], [0, 0], [1, 0]])
    probabilities = np.array([[0.9, 0.1], [0.2, 0.1], [0.1, 0.1]])
    assert MEAN_AUC.of(labels, probabilities) == 0.5, "a label of one class has no curve"
    assert np.isnan(MEAN_AUC.of(labels[:, 1:], probabilities[:, 1:]))


def test_errors_are_measured_against_a_constant_prediction() -> None:
    targets = np.array([0.0, 2.0, 4.0])
    assert RMSE.unit(targets) == pytest.approx(targets.std())
    assert ACCURACY.unit(targets) == LOG_LOSS.unit(targets) == 1
    assert RMSE.unit(np.ones(3)) == 1


@pytest.mark.parametrize("task", BUNDLED, ids=lambda task: task.name)
def test_bundled_tasks_score_the_same_twice_and_differ_by_seed(task: Task) -> None:
    assert task.load
    data = task.load()
    first, again, other = (task.objective(data, seed)(task.space.start) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert np.isfinite(first).all()


def test_a_model_never_sees_validation_or_test_rows() -> None:
    task = task_named("wine")
    assert task.load
    data = task.load()
    split = task.split(data, 3)
    spoiled = Data(data.features.copy(), data.targets.copy())
    rng = np.random.default_rng(0)
    seen: list[float] = []

    class Spy:
        def fit(self, features: np.ndarray, targets: np.ndarray) -> None:
            seen.append(float(features.sum()))
            self.most = np.bincount(targets).argmax()

        def predict(self, features: np.ndarray) -> np.ndarray:
            return np.full(len(features), self.most)

    spied = Task("spied", "", task.space, task.score, lambda config, seed: Spy(), stratified=True)
    spied.evaluate(spoiled, split, task.space.start, 3)
    held = np.concatenate([split.validation, split.test])
    spoiled.features[held] = rng.normal(size=spoiled.features[held].shape)
    spied.evaluate(spoiled, split, task.space.start, 3)
    assert seen[0] == seen[1] == data.features[split.train].sum()


def test_an_unknown_task_names_those_there_are() -> None:
    with pytest.raises(StudyError, match="no benchmark 'iris'; choose one of toy, toy-flat"):
        task_named("iris")


def test_without_scikit_learn_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for task in TASKS:
        with pytest.raises(StudyError, match=r"pip install 'contextcliff-dagster\[visibility\]'"):
            load_data(task, Store.default())
