"""Catalogue of tasks: bundled tasks, and tasks from Kaggle whose data must first be prepared."""

from __future__ import annotations

from typing import Any

import numpy as np

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.tasks.kaggle import KAGGLE, load_prepared
from contextcliff_dagster.extensions.visibility.tasks.task import (
    ACCURACY,
    LOG_LOSS,
    RMSE,
    Choice,
    Data,
    Number,
    Space,
    Task,
    require_libraries,
    scikit_learn,
)
from contextcliff_dagster.store import Store


def _bundled(name: str) -> Data:
    require_libraries()
    from sklearn import datasets

    features, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Data(np.asarray(features, dtype=np.float64), np.asarray(targets))


def _made_classes(**how: Any) -> Data:
    require_libraries()
    from sklearn.datasets import make_classification

    return Data(*make_classification(n_redundant=2, n_classes=2, random_state=0, **how))


def _toy() -> Data:
    """Return data with few rows and many noise columns, so that the penalty matters."""
    return _made_classes(
        n_samples=400,
        n_features=60,
        n_informative=10,
        n_clusters_per_class=1,
        class_sep=2.0,
        flip_y=0.05,
    )


def _digits() -> Data:
    """Return every third digit, as this makes training ten times faster and scores vary as much."""
    bundle = _bundled("digits")
    return Data(bundle.features[::3], bundle.targets[::3])


def _friedman() -> Data:
    require_libraries()
    from sklearn.datasets import make_friedman1

    features, targets = make_friedman1(n_samples=500, n_features=10, noise=1.0, random_state=0)
    return Data(features, targets)


_LOGISTIC = Space(
    (Number("C", 0.01, 100, log=True), Number("max_iter", 10, 1000, integer=True)),
    {"C": 0.7168, "max_iter": 300},
)

BUNDLED = (
    Task(
        name="toy",
        summary="generated, two classes, logistic regression",
        space=_LOGISTIC,
        score=ACCURACY,
        estimator=scikit_learn("linear_model.LogisticRegression"),
        load=_toy,
        stratified=True,
    ),
    Task(
        name="toy-flat",
        summary="the toy of context-eval",
        space=_LOGISTIC,
        score=ACCURACY,
        estimator=scikit_learn("linear_model.LogisticRegression"),
        load=lambda: _made_classes(n_samples=1000, n_features=20, n_informative=10, class_sep=1.5),
        stratified=True,
    ),
    Task(
        name="digits",
        summary="handwritten digits, ten classes, support vectors",
        space=Space(
            (Number("C", 0.01, 100, log=True), Number("gamma", 1e-5, 0.1, log=True)),
            {"C": 1.0, "gamma": 0.01},
        ),
        score=ACCURACY,
        estimator=scikit_learn("svm.SVC"),
        load=_digits,
        stratified=True,
    ),
    Task(
        name="breast-cancer",
        summary="cell nuclei, two classes, logistic regression",
        space=Space(
            (
                Number("C", 1e-5, 1e4, log=True),
                Number("max_iter", 5, 500, log=True, integer=True),
            ),
            {"C": 0.001, "max_iter": 100},
        ),
        score=LOG_LOSS,
        estimator=scikit_learn("linear_model.LogisticRegression", scaled=True),
        load=lambda: _bundled("breast_cancer"),
        stratified=True,
    ),
    Task(
        name="wine",
        summary="chemical analyses, three classes, nearest neighbours",
        space=Space(
            (
                Number("n_neighbors", 1, 100, log=True, integer=True),
                Choice("weights", ("uniform", "distance")),
                Number("p", 1, 5),
            ),
            {"n_neighbors": 30, "weights": "uniform", "p": 2.0},
        ),
        score=ACCURACY,
        estimator=scikit_learn("neighbors.KNeighborsClassifier", seeded=False),
        load=lambda: _bundled("wine"),
        stratified=True,
    ),
    Task(
        name="diabetes",
        summary="progression after a year, elastic net",
        space=Space(
            (Number("alpha", 1e-3, 100, log=True), Number("l1_ratio", 0, 1)),
            {"alpha": 10.0, "l1_ratio": 0.5},
        ),
        score=RMSE,
        estimator=scikit_learn("linear_model.ElasticNet", scaled=True),
        load=lambda: _bundled("diabetes"),
    ),
    Task(
        name="friedman",
        summary="generated (Friedman 1991), regression by support vectors",
        space=Space(
            (
                Number("C", 0.1, 1000, log=True),
                Number("gamma", 0.001, 1, log=True),
                Number("epsilon", 0.01, 2, log=True),
            ),
            {"C": 1.0, "gamma": 0.01, "epsilon": 0.1},
        ),
        score=RMSE,
        estimator=scikit_learn("svm.SVR", scaled=True, seeded=False),
        load=_friedman,
    ),
)
"""Tasks whose data need no preparation."""


TASKS = (*BUNDLED, *KAGGLE)


def task_named(name: str) -> Task:
    """Return the task ``name``; raise StudyError if there is none."""
    for task in TASKS:
        if task.name == name:
            return task
    names = ", ".join(task.name for task in TASKS)
    raise StudyError(f"There is no benchmark {name!r}; choose one of {names}.")


def load_data(task: Task, store: Store) -> Data:
    """Return the data of a task: bundled, generated, or prepared in ``store``.

    Raise DataError unless they are there and whole, StudyError without scikit-learn.
    """
    require_libraries()
    return task.load() if task.load else load_prepared(store, task.name)
