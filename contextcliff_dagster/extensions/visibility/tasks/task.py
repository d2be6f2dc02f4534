"""A task, its space of parameters, and one configuration of it made to fit, trained and scored.

A position is a value's place between its bounds, 0 to 1, on the parameter's own scale: the middle
of .01 to 100 on a log scale is 1.

A proposal is made to fit the space, with an event for everything that was changed in it. Nothing in
a proposal raises. Against context-eval: NaN changes nothing instead of becoming the upper bound,
infinity and integers of any size meet the bound, and what cannot be read, was read as another type,
rounded or not known is an event instead of silence.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError, StudyError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Score:
    """How predictions are judged.

    Attributes:
        name: as it is known.
        higher_is_better: its direction.
        of: targets and predictions to the score.
        predictions: which ones: values or classes, or a probability of each class.
        relative: whether differences are in shares of a constant prediction's score. Errors have
            the unit of their target; a share of rows has none.
    """

    name: str
    higher_is_better: bool
    of: Callable[[Array, Array], float]
    predictions: Literal["values", "probabilities"] = "values"
    relative: bool = False

    def unit(self, targets: Array) -> float:
        """Return what a difference of 1 is: 1, or the score of predicting the mean everywhere."""
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
    """Mean area under the ROC curve of the columns whose targets have both classes; else nan."""
    from sklearn.metrics import roc_auc_score

    both = [k for k in range(targets.shape[1]) if 0 < targets[:, k].mean() < 1]
    areas = [roc_auc_score(targets[:, k], probabilities[:, k]) for k in both]
    return float(np.mean(areas)) if areas else float("nan")


def _log_loss(targets: Array, probabilities: Array) -> float:
    """Mean -log of the probability of the right class; classes are numbered from 0."""
    right = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(np.clip(right, 1e-15, 1.0)).mean())


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
    """A number from ``low`` to ``high``, both included.

    Raises:
        ValueError: there is nothing between the bounds, a log scale reaches 0, or the bounds of
            an integer are none.
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
            raise ValueError(f"{self.name}: a log scale begins above 0")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"{self.name}: the bounds of an integer are integers")

    def clipped(self, value: float) -> float | int:
        """Return ``value`` within the bounds; an integer where the parameter is one, half to even.

        Any finite or infinite number is allowed, integers of any size, too.
        """
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.integer else float(inside)

    def position(self, value: Value) -> float:
        """Return the position of a number, or of the bound that it lies beyond."""
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
        """Return how far two values are from each other: 0 to 1."""
        return abs(self.position(a) - self.position(b))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values without an order.

    Raises:
        ValueError: there are fewer than two, or two are equal.
    """

    name: str
    choices: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(set(map(str, self.choices))) != len(self.choices) or len(self.choices) < 2:
            raise ValueError(f"{self.name}: fewer than two different choices")

    def position(self, value: Value) -> float:
        """Return the middle of the choice's share of 0 to 1.

        Raises:
            ValueError: it is none of the choices.
        """
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
    """The parameters of a task, sorted by name, and the configuration that it begins with."""

    parameters: tuple[Parameter, ...]
    start: Config

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.parameters, key=lambda one: one.name))
        object.__setattr__(self, "parameters", ordered)
        if set(self.start) != set(self.names) or len(self.start) != len(ordered):
            raise ValueError("the start does not have each parameter once")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parameters)

    def at(self, positions: Sequence[float] | Floats) -> dict[str, Value]:
        """Return the configuration at these positions, in the order of `names`."""
        pairs = zip(self.parameters, positions, strict=True)
        return {one.name: one.at(float(place)) for one, place in pairs}

    def positions(self, config: Config) -> Floats:
        """Return the position of each parameter, in the order of `names`."""
        return np.array([one.position(config[one.name]) for one in self.parameters])

    def distances(self, a: Config, b: Config) -> Floats:
        """Return how far each parameter moved between two configurations: 0 to 1 each."""
        pairs = ((one, a[one.name], b[one.name]) for one in self.parameters)
        return np.array([one.distance(x, y) for one, x, y in pairs])

    def without_order(self) -> NDArray[np.bool_]:
        """Return which parameters are choices, in the order of `names`."""
        return np.array([isinstance(one, Choice) for one in self.parameters])


Shown: TypeAlias = Value | None
_LONGEST = 80
_EXACT = 1 << 53


class Reason(StrEnum):
    """Why what was proposed is not what is executed."""

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
    """One change to a proposal; ``executed`` is None where the current value stays.

    ``parameter`` is empty for a proposal that is no JSON object. ``proposed`` can be written as
    JSON: what cannot, or is long, is described.
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
    """The parameters that a proposal sets, within the bounds, and what was changed in it."""

    values: Mapping[str, Value]
    events: tuple[ClampEvent, ...]

    def onto(self, current: Mapping[str, Value]) -> dict[str, Value]:
        """Return the current configuration with the proposed values in it."""
        return {**current, **self.values}


def clamp(space: Space, proposal: object) -> Clamped:
    """Return what a proposal, any JSON value, sets in ``space``.

    Numbers beyond a bound become the bound; integers are rounded half to even, after that test.
    A parameter that the proposal leaves out, or whose value cannot be read, keeps its value.
    """
    if not isinstance(proposal, Mapping):
        return Clamped({}, (ClampEvent("", shown(proposal), None, Reason.NO_OBJECT),))
    known = {one.name: one for one in space.parameters}
    values: dict[str, Value] = {}
    events = []
    for name, value in proposal.items():
        executed: Value | None = None
        reason: Reason | None = Reason.UNKNOWN
        if name in known:
            executed, reason = _fitted(known[name], value)
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
    """The value as models write it: 1 and 1.0 are 1, true and 1 are the same, case aside."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    text = str(value).strip().lower()
    return {"true": "1", "false": "0"}.get(text, text)


def shown(value: object) -> Shown:
    """Return ``value`` as JSON can hold it: numbers and short texts unchanged, the rest as words.

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
