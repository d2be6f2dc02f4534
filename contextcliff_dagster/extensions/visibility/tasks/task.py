"""Tasks and their parameter spaces; clamping, training and scoring of a configuration.

A position locates a value between its bounds, from 0 to 1, on the parameter's own scale: on a log
scale from .01 to 100, the value 1 has the position .5.

Proposals are clamped to the space, with an event for every change. No proposal raises an error.
Differences from context-eval: NaN changes nothing instead of becoming the upper bound; infinity and
integers of any size become the bound; values that are unreadable, converted, rounded or unknown are
recorded as events instead of being ignored silently.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError, StudyError, install_command

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Score:
    """A score of predictions.

    Attributes:
        name: the score's usual name.
        higher_is_better: direction of the score.
        of: function from targets and predictions to the score.
        predictions: kind of predictions: values or classes, or a probability for each class.
        relative: whether differences are relative to a constant prediction's score, as needed for
        errors, which have the unit of their target.
    """

    name: str
    higher_is_better: bool
    of: Callable[[Array, Array], float]
    predictions: Literal["values", "probabilities"] = "values"
    relative: bool = False

    def unit(self, targets: Array) -> float:
        """Return the unit of differences: 1, or the score of always predicting the mean."""
        if not self.relative:
            return 1.0
        return self.of(targets, np.full(len(targets), targets.mean())) or 1.0


def _accuracy(targets: Array, classes: Array) -> float:
    return float(np.mean(targets == classes))


def _rmse(targets: Array, values: Array) -> float:
    return float(np.sqrt(np.mean((targets - values) ** 2)))


def _rmsle(targets: Array, values: Array) -> float:
    return _rmse(np.log1p(targets), np.log1p(np.clip(values, 0, None)))


def _mean_auc(targets: Array, probabilities: Array) -> float:
    """Return the mean ROC AUC over columns that include both classes; nan if there are none."""
    from sklearn.metrics import roc_auc_score

    labels = [k for k in range(targets.shape[1]) if 0 < targets[:, k].mean() < 1]
    areas = [roc_auc_score(targets[:, k], probabilities[:, k]) for k in labels]
    return float(np.mean(areas)) if areas else float("nan")


def _log_loss(targets: Array, probabilities: Array) -> float:
    """Return the mean of -log probability of the correct class; classes are numbered from 0."""
    likelihoods = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(np.clip(likelihoods, 1e-15, 1.0)).mean())


ACCURACY = Score("accuracy", True, _accuracy)
RMSE = Score("RMSE", False, _rmse, relative=True)
RMSLE = Score("RMSLE", False, _rmsle, relative=True)
MEAN_AUC = Score("mean column-wise ROC AUC", True, _mean_auc, "probabilities")
LOG_LOSS = Score("log loss", False, _log_loss, "probabilities")


Value: TypeAlias = float | int | str | bool
Config: TypeAlias = Mapping[str, Value]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric parameter from ``low`` to ``high``, both included.

    Raises:
        ValueError: the bounds are empty or infinite, a log scale reaches 0, or the bounds of an
            integer are not integers.
    """

    name: str
    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"{self.name}: no finite bounds with numbers between them")
        if self.log and self.low <= 0:
            raise ValueError(f"{self.name}: a log scale needs a lower bound above 0")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"{self.name}: the bounds of an integer are integers")

    def clipped(self, value: float) -> float | int:
        """Return ``value`` within the bounds, rounded half to even if the parameter is an integer.

        Any finite or infinite number is allowed, including integers of any size.
        """
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)

    def position(self, value: Value) -> float:
        """Return the position of a number; numbers beyond a bound have the bound's position."""
        inside, low, high = float(self.clipped(float(value))), self.low, self.high
        if self.log:
            inside, low, high = math.log(inside), math.log(low), math.log(high)
        return (inside - low) / (high - low)

    def at(self, position: float) -> float | int:
        """Return the value at a position."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.clipped(math.exp(low + position * (high - low)))
        return self.clipped(self.low + position * (self.high - self.low))

    def distance(self, a: Value, b: Value) -> float:
        """Return the distance between two values, 0 to 1."""
        return abs(self.position(a) - self.position(b))


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter with two or more different, unordered values; else raise ValueError."""

    name: str
    choices: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(map(str, self.choices))) != len(self.choices) or len(self.choices) < 2:
            raise ValueError(f"{self.name}: fewer than two different choices")

    def position(self, value: Value) -> float:
        """Return the midpoint of the choice's equal part of 0 to 1; raise ValueError."""
        return (self.choices.index(value) + 0.5) / len(self.choices)

    def at(self, position: float) -> Value:
        """Return the choice at a position."""
        return self.choices[min(int(position * len(self.choices)), len(self.choices) - 1)]

    def distance(self, a: Value, b: Value) -> float:
        """Return 0 for the same choice, 1 for another."""
        return float(a != b)


Parameter: TypeAlias = Number | Choice


@dataclass(frozen=True, slots=True)
class Space:
    """The parameters of a task, sorted by name, and its start configuration."""

    parameters: tuple[Parameter, ...]
    start: Config

    def __post_init__(self) -> None:
        parameters = tuple(sorted(self.parameters, key=lambda one: one.name))
        object.__setattr__(self, "parameters", parameters)
        if set(self.start) != set(self.names) or len(self.start) != len(parameters):
            raise ValueError("the start does not have each parameter once")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    def at(self, positions: Sequence[float] | Floats) -> dict[str, Value]:
        """Return the configuration at these positions, in the order of `names`."""
        pairs = zip(self.parameters, positions, strict=True)
        return {parameter.name: parameter.at(float(place)) for parameter, place in pairs}

    def positions(self, config: Config) -> Floats:
        """Return the position of each parameter, in the order of `names`."""
        return np.array([param.position(config[param.name]) for param in self.parameters])

    def distances(self, a: Config, b: Config) -> Floats:
        """Return each parameter's distance between two configurations, 0 to 1."""
        pairs = ((parameter, a[parameter.name], b[parameter.name]) for parameter in self.parameters)
        return np.array([parameter.distance(x, y) for parameter, x, y in pairs])


Shown: TypeAlias = Value | None
_LONGEST = 80
_EXACT = 1 << 53


class Reason(StrEnum):
    """Reason why the executed value differs from the proposed one."""

    BELOW = "below"
    ABOVE = "above"
    ROUNDED = "rounded"
    CONVERTED = "converted"
    NAN = "nan"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_CHOICE = "not_a_choice"
    UNKNOWN = "unknown_parameter"
    NO_OBJECT = "no_object"


@dataclass(frozen=True, slots=True)
class ClampEvent:
    """A change to a proposal; ``executed`` is None if the parameter keeps its current value.

    ``parameter`` is empty for a proposal that is not a JSON object. ``proposed`` is valid JSON;
    long or unsupported values are described in words.
    """

    parameter: str
    proposed: Shown
    executed: Shown
    reason: Reason

    @property
    def out_of_bounds(self) -> bool:
        return self.reason in (Reason.BELOW, Reason.ABOVE)


@dataclass(frozen=True, slots=True)
class Clamped:
    """The parameters that a proposal sets, within the bounds, and the changes made to it."""

    values: Mapping[str, Value]
    events: tuple[ClampEvent, ...]

    def onto(self, current: Mapping[str, Value]) -> dict[str, Value]:
        """Return the current configuration updated with the proposed values."""
        return {**current, **self.values}


def clamp(space: Space, proposal: object) -> Clamped:
    """Return the parameters of ``space`` that a proposal sets; the proposal may be any JSON value.

    Numbers beyond a bound become the bound; then integers are rounded half to even. A parameter
    that the proposal omits, or whose value cannot be read, keeps its current value.
    """
    if not isinstance(proposal, Mapping):
        return Clamped({}, (ClampEvent("", shown(proposal), None, Reason.NO_OBJECT),))
    parameters = {parameter.name: parameter for parameter in space.parameters}
    values: dict[str, Value] = {}
    events = []
    for name, value in proposal.items():
        executed: Value | None = None
        reason: Reason | None = Reason.UNKNOWN
        if name in parameters:
            executed, reason = _fitted(parameters[name], value)
        if executed is not None:
            values[name] = executed
        if reason is not None:
            events.append(ClampEvent(str(shown(name)), shown(value), executed, reason))
    return Clamped(values, tuple(events))


def _fitted(parameter: Parameter, value: object) -> tuple[Value | None, Reason | None]:
    if isinstance(parameter, Choice):
        return _choice(parameter, value)
    return _number(parameter, value)


def _number(parameter: Number, value: object) -> tuple[Value | None, Reason | None]:
    reason = None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None, Reason.NOT_A_NUMBER
        reason = Reason.CONVERTED
    # True is an integer to Python, and no number to the person who reads a configuration.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, Reason.NOT_A_NUMBER
    if value != value:
        return None, Reason.NAN
    if value < parameter.low:
        reason = Reason.BELOW
    elif value > parameter.high:
        reason = Reason.ABOVE
    elif parameter.integer and not float(value).is_integer():
        reason = Reason.ROUNDED
    return parameter.clipped(value), reason


def _choice(parameter: Choice, value: object) -> tuple[Value | None, Reason | None]:
    for choice in parameter.choices:
        if type(value) is type(choice) and value == choice:
            return choice, None
    for choice in parameter.choices:
        if _written(shown(value)) == _written(choice):
            return choice, Reason.CONVERTED
    return None, Reason.NOT_A_CHOICE


def _written(value: Shown) -> str:
    """Return the value as text for comparison: 1, 1.0 and true are equal, and case is ignored."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    text = str(value).strip().lower()
    return {"true": "1", "false": "0"}.get(text, text)


def shown(value: object) -> Shown:
    """Return ``value`` as valid JSON: most numbers and short texts unchanged, the rest in words.

    >>> shown(float("nan")), shown(10**5000), shown([1, 2])
    ('nan', 'an integer of 16610 bits', 'a list')
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # Past 4,300 digits Python refuses to write an integer; past 2**53 JSON readers round it.
        return value if abs(value) <= _EXACT else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
    return f"a {type(value).__name__}"


class Estimator(Protocol):
    """A scikit-learn estimator; `predict_proba` is needed only for scores of probabilities."""

    def fit(self, features: Any, targets: Any) -> Any: ...
    def predict(self, features: Any) -> Any: ...
    def predict_proba(self, features: Any) -> Any: ...


def scikit_learn(
    path: str, *, scaled: bool = False, seeded: bool = True
) -> Callable[[Config, int], Estimator]:
    """Return a function that makes the estimator at ``path``, such as ``svm.SVC``.

    The configuration has all of its arguments but the seed, which it gets if ``seeded``. With
    ``scaled``, columns are standardised first.
    """

    def make(config: Config, seed: int) -> Estimator:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        module, _, name = path.rpartition(".")
        made = getattr(import_module(f"sklearn.{module}"), name)
        model: Estimator = made(**config, **({"random_state": seed} if seeded else {}))
        return make_pipeline(StandardScaler(), model) if scaled else model

    return make


@dataclass(frozen=True, slots=True)
class Data:
    """Rows of numbers (rows x columns) or texts; each row has one target, or one per label."""

    features: Array
    targets: Array


class Evaluation(NamedTuple):
    """Scores on the validation rows, seen by a search, and on the test rows, only reported."""

    validation: float
    test: float


Objective: TypeAlias = Callable[[Config], Evaluation]


@dataclass(frozen=True, slots=True)
class Task:
    """A tuning task.

    Attributes:
        name: name, as in ``--benchmark``.
        summary: data and model in a few words.
        space: parameters, bounds and start.
        score: the score to optimise.
        estimator: function from a configuration and a seed to an untrained model.
        load: function that loads bundled or generated data; None if prepared from a file.
        stratified: whether splits preserve the proportions of the target classes.
    """

    name: str
    summary: str
    space: Space
    score: Score
    estimator: Callable[[Config, int], Estimator]
    load: Callable[[], Data] | None = None
    stratified: bool = False

    def split(self, data: Data, seed: int) -> Split:
        """Return the split of a seed; see `split_rows` for errors."""
        return split_rows(len(data.targets), seed, data.targets if self.stratified else None)

    def objective(self, data: Data, seed: int) -> Objective:
        """Return a function that scores configurations by models and split of ``seed``."""
        split = self.split(data, seed)
        return lambda config: self.evaluate(data, split, config, seed)

    def evaluate(self, data: Data, split: Split, config: Config, seed: int) -> Evaluation:
        """Return the scores of a model trained only on the split's training rows.

        Uses one thread, so that scores do not depend on the number of cores.
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
    """Return a controller of this process's thread pools, cached because finding them is slow."""
    import sklearn.ensemble  # noqa: F401 - loads OpenMP, which it would not find before
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def require_libraries() -> None:
    """Raise StudyError unless scikit-learn and optuna are installed, before anything is trained."""
    for library, module in (("scikit-learn", "sklearn"), ("optuna", "optuna")):
        if find_spec(module) is None:
            raise StudyError(
                f"The experiment `visibility` needs {library}, which is not installed: "
                f"{install_command('visibility')}."
            )


HELD_SHARE = 0.2
"""Fraction of the rows used for validation, and again for test."""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of the three parts of the data; every row is in exactly one."""

    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    test: NDArray[np.intp]


def split_rows(rows: int, seed: int, classes: NDArray[np.generic] | None = None) -> Split:
    """Split rows 0 to ``rows`` - 1 into .6, .2 and .2; the same seed gives the same split.

    With ``classes``, the class of each row, every class is about equally frequent in all parts.

    Raises:
        DataError: there are too few rows, or too few of a class.
        ValueError: the seed is negative or above 2**32 - 1.
    """
    from sklearn.model_selection import train_test_split

    held_rows = round(rows * HELD_SHARE)
    labels = None if classes is None else np.asarray(classes)
    fewest = rows if labels is None else int(np.unique(labels, return_counts=True)[1].min())
    kinds = 1 if labels is None else len(np.unique(labels))
    if held_rows < max(1, kinds) or fewest < 3:
        raise DataError(
            f"{rows} rows in {kinds} classes (the smallest has {fewest}) cannot be split into "
            f"training, validation and test; at least {5 * kinds} rows are needed, 3 of each class."
        )
    order = np.arange(rows)
    rest, test = train_test_split(order, test_size=held_rows, random_state=seed, stratify=labels)
    remaining = None if labels is None else labels[rest]
    train, validation = train_test_split(
        rest, test_size=held_rows, random_state=seed, stratify=remaining
    )
    return Split(train, validation, test)
