"""A task, and one configuration of it trained and scored."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError, StudyError
from contextcliff_dagster.extensions.visibility.tasks.parameters import Config, Space
from contextcliff_dagster.extensions.visibility.tasks.scores import Score

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array: TypeAlias = NDArray[Any]


class Estimator(Protocol):
    """What scikit-learn calls one; `predict_proba` is used by scores of probabilities only."""

    def fit(self, features: Any, targets: Any) -> Any: ...
    def predict(self, features: Any) -> Any: ...
    def predict_proba(self, features: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Data:
    """Rows of numbers (rows x columns) or texts, and their targets: one each, or one a label."""

    features: Array
    targets: Array


class Evaluation(NamedTuple):
    """Score on the rows that a search sees, and on those that are only reported."""

    validation: float
    test: float


Objective: TypeAlias = Callable[[Config], Evaluation]


@dataclass(frozen=True, slots=True)
class Task:
    """What is tuned.

    Attributes:
        name: as in ``--benchmark``.
        summary: data and model in a few words.
        space: parameters, bounds and start.
        score: what is optimised.
        estimator: an untrained model of a configuration and a seed.
        load: the bundled or generated data; None where they are prepared from a file.
        stratified: whether splits keep the shares of the targets' classes.
    """

    name: str
    summary: str
    space: Space
    score: Score
    estimator: Callable[[Config, int], Estimator]
    load: Callable[[], Data] | None = None
    stratified: bool = False

    def split(self, data: Data, seed: int) -> Split:
        """Return the split of a seed; raises as `split_rows`."""
        return split_rows(len(data.targets), seed, data.targets if self.stratified else None)

    def objective(self, data: Data, seed: int) -> Objective:
        """Return configurations' scores on the split of ``seed``, which also seeds the model.

        Raises:
            as `split_rows`; what it returns as scikit-learn does, where a model cannot be trained.
        """
        split = self.split(data, seed)
        return lambda config: self.evaluate(data, split, config, seed)

    def evaluate(self, data: Data, split: Split, config: Config, seed: int) -> Evaluation:
        """Return the scores of a model trained on the split's training rows alone.

        One thread, so that a score does not depend on how many cores there are.
        """
        with _threads().limit(limits=1), warnings.catch_warnings():
            # A configuration that stops before it converges is a legitimate one to try.
            warnings.simplefilter("ignore")
            model = self.estimator(config, seed)
            model.fit(data.features[split.train], data.targets[split.train])
            return Evaluation(
                *(self._scored(model, data, rows) for rows in (split.validation, split.test))
            )

    def _scored(self, model: Estimator, data: Data, rows: NDArray[np.intp]) -> float:
        features, targets = data.features[rows], data.targets[rows]
        if self.score.predictions == "values":
            return self.score.of(targets, model.predict(features))
        return self.score.of(targets, model.predict_proba(features))


@cache
def _threads() -> ThreadpoolController:
    """The thread pools of this process; finding them takes longer than training a small model."""
    import sklearn.ensemble  # noqa: F401 - loads OpenMP, which it would not find before
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def require_scikit_learn() -> None:
    """Check that scikit-learn is there.

    Raises:
        StudyError: it is not installed.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise StudyError(
            "The experiment `visibility` trains models of scikit-learn, which is not installed: "
            "`pip install 'contextcliff-dagster[visibility]'`."
        ) from error


HELD_SHARE = 0.2
"""Share of the rows in validation, and again in test."""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of each part; every row is in one of them."""

    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    test: NDArray[np.intp]


def split_rows(rows: int, seed: int, classes: NDArray[np.generic] | None = None) -> Split:
    """Return rows 0 to ``rows`` - 1 divided .6, .2, .2; the same seed gives the same split.

    With ``classes``, one of each row, each part has every class in about its share.

    Raises:
        DataError: there are too few rows, or too few of a class.
        ValueError: the seed is negative or above 2**32 - 1.
    """
    from sklearn.model_selection import train_test_split

    held = round(rows * HELD_SHARE)
    labels = None if classes is None else np.asarray(classes)
    fewest = rows if labels is None else int(np.unique(labels, return_counts=True)[1].min())
    kinds = 1 if labels is None else len(np.unique(labels))
    if held < max(1, kinds) or fewest < 3:
        raise DataError(
            f"{rows} rows of {kinds} classes, the smallest of {fewest}, cannot be divided into "
            f"training, validation and test; give {5 * kinds} or more, and 3 of each class."
        )
    order = np.arange(rows)
    rest, test = train_test_split(order, test_size=held, random_state=seed, stratify=labels)
    remaining = None if labels is None else labels[rest]
    train, validation = train_test_split(
        rest, test_size=held, random_state=seed, stratify=remaining
    )
    return Split(train, validation, test)
