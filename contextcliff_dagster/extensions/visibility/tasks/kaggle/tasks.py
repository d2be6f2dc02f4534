"""The five tasks on competitions' data: what is tuned, within context-eval's bounds."""

from __future__ import annotations

from contextcliff_dagster.extensions.visibility.tasks.parameters import (
    Choice,
    Config,
    Number,
    Space,
)
from contextcliff_dagster.extensions.visibility.tasks.scores import (
    ACCURACY,
    LOG_LOSS,
    MEAN_AUC,
    RMSE,
    RMSLE,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Estimator, Task


def _boosting(config: Config, seed: int) -> Estimator:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    boosting = HistGradientBoostingRegressor(**config, random_state=seed)
    model: Estimator = make_pipeline(StandardScaler(), boosting)
    return model


def _words(config: Config, seed: int) -> Estimator:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(
        max_features=config["max_features"],
        ngram_range=(1, config["ngram_max"]),
        min_df=config["min_df"],
        strip_accents="unicode",
    )
    logistic = LogisticRegression(C=config["C"], max_iter=config["max_iter"], random_state=seed)
    model: Estimator = make_pipeline(words, OneVsRestClassifier(logistic))
    return model


def _leaves(config: Config, seed: int) -> Estimator:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    logistic = LogisticRegression(
        C=config["C"], tol=config["tol"], max_iter=config["max_iter"], random_state=seed
    )
    model: Estimator = make_pipeline(StandardScaler(), logistic)
    return model


def _forest(config: Config, seed: int) -> Estimator:
    from sklearn.ensemble import RandomForestClassifier

    model: Estimator = RandomForestClassifier(**config, random_state=seed)
    return model


def _extra_trees(config: Config, seed: int) -> Estimator:
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model: Estimator = make_pipeline(
        StandardScaler(), ExtraTreesRegressor(**config, random_state=seed)
    )
    return model


def _whole(name: str, low: int, high: int, *, log: bool = False) -> Number:
    return Number(name, low, high, log=log, integer=True)


KAGGLE = (
    Task(
        name="nomad",
        summary="band gaps of transparent conductors, gradient boosting",
        space=Space(
            (
                Number("learning_rate", 0.005, 0.5, log=True),
                _whole("max_depth", 2, 20),
                _whole("max_iter", 50, 2000),
                Number("l2_regularization", 1e-4, 5, log=True),
                _whole("max_leaf_nodes", 15, 255),
                _whole("min_samples_leaf", 1, 200),
            ),
            {
                "learning_rate": 0.1,
                "max_depth": 6,
                "max_iter": 300,
                "l2_regularization": 0.1,
                "max_leaf_nodes": 31,
                "min_samples_leaf": 20,
            },
        ),
        score=RMSLE,
        estimator=_boosting,
    ),
    Task(
        name="jigsaw",
        summary="six labels of toxic comments, TF-IDF and logistic regression",
        space=Space(
            (
                _whole("max_features", 500, 100_000, log=True),
                _whole("ngram_max", 1, 3),
                _whole("min_df", 1, 30),
                Number("C", 0.001, 100, log=True),
                _whole("max_iter", 50, 2000),
            ),
            {"max_features": 10_000, "ngram_max": 2, "min_df": 5, "C": 1.0, "max_iter": 100},
        ),
        score=MEAN_AUC,
        estimator=_words,
    ),
    Task(
        name="leaf",
        summary="99 species of leaves by their shape, logistic regression",
        space=Space(
            (
                Number("C", 1e-4, 1000, log=True),
                Number("tol", 1e-6, 0.1, log=True),
                _whole("max_iter", 5, 500, log=True),
            ),
            {"C": 1.0, "tol": 1e-4, "max_iter": 100},
        ),
        score=LOG_LOSS,
        estimator=_leaves,
        stratified=True,
    ),
    Task(
        name="forest",
        summary="seven types of forest cover, random forest",
        space=Space(
            (
                _whole("n_estimators", 50, 2000),
                _whole("max_depth", 3, 100),
                _whole("min_samples_split", 2, 50),
                _whole("min_samples_leaf", 1, 50),
                Number("max_features", 0.1, 1),
            ),
            {
                "n_estimators": 100,
                "max_depth": 10,
                "min_samples_split": 5,
                "min_samples_leaf": 2,
                "max_features": 0.5,
            },
        ),
        score=ACCURACY,
        estimator=_forest,
        stratified=True,
    ),
    Task(
        name="housing",
        summary="house values in California, extremely randomised trees",
        space=Space(
            (
                _whole("n_estimators", 10, 1500),
                _whole("max_depth", 2, 80),
                _whole("min_samples_split", 2, 80),
                _whole("min_samples_leaf", 1, 60),
                Number("max_features", 0.05, 1),
                Choice("bootstrap", (False, True)),
            ),
            {
                "n_estimators": 100,
                "max_depth": 10,
                "min_samples_split": 5,
                "min_samples_leaf": 2,
                "max_features": 0.8,
                "bootstrap": False,
            },
        ),
        score=RMSE,
        estimator=_extra_trees,
    ),
)
"""Tasks whose data `prepare` makes of a downloaded file."""
