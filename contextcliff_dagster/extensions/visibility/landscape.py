"""Landscapes: scores of many configurations across a task's space, measured once on many splits.

Starts of known quality are drawn from landscapes, and `kept_landscapes` stores them.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Config,
    Data,
    Evaluation,
    Floats,
    Number,
    Space,
    Task,
    Value,
)

POINTS, SPLITS = 128, 20
COARSE = 64, 4
"""Configurations and splits of a coarse landscape: its trainings are part of the full one's."""


@dataclass(frozen=True)
class Landscape:
    """Scores across a space, as arrays of configurations x splits; nan if training failed.

    Attributes:
        task: name of the task.
        made_of: hash of everything that the scores depend on, see `fingerprint`.
        higher_is_better: direction of the score.
        unit: unit in which score differences are expressed, see `Score.unit`.
        configs: the configurations.
        splits: seeds for the splits and for the models trained on them.
        validation: scores on the rows that a search sees.
        test: scores on the rows that are used only for reporting.
    """

    task: str
    made_of: str
    higher_is_better: bool
    unit: float
    configs: tuple[Config, ...]
    splits: tuple[int, ...]
    validation: Floats
    test: Floats

    @cached_property
    def means(self) -> Floats:
        """Return each configuration's mean test score; nan if training failed on any split."""
        return np.asarray(self.test.mean(axis=1))

    @cached_property
    def best(self) -> float:
        """Return the best mean test score; nan if there is none."""
        return self._extreme(self.higher_is_better)

    @cached_property
    def worst(self) -> float:
        """Return the worst mean test score; nan if there is none."""
        return self._extreme(not self.higher_is_better)

    @cached_property
    def noise(self) -> float:
        """Return the SD of a test score on one split, less the means of configuration and split."""
        rows = self.test[np.isfinite(self.test).all(axis=1)]
        left = rows - rows.mean(axis=1, keepdims=True) - rows.mean(axis=0) + rows.mean()
        degrees = (rows.shape[0] - 1) * (rows.shape[1] - 1)
        return float(np.sqrt((left**2).sum() / degrees)) if degrees > 0 else float("nan")

    def _extreme(self, highest: bool) -> float:
        finite = self.means[np.isfinite(self.means)]
        if not len(finite):
            return float("nan")
        return float(finite.max() if highest else finite.min())


def tabulate(
    task: Task,
    data: Data,
    *,
    points: int = POINTS,
    splits: Sequence[int] = range(SPLITS),
    seed: int = 0,
    evaluate: Callable[[Config, int], Evaluation] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Landscape:
    """Train ``points`` Sobol configurations on every split, and return their scores.

    The scores of configurations that scikit-learn cannot train are nan.

    Args:
        seed: seed of the Sobol sequence.
        evaluate: returns a configuration's scores on a split; by default it is trained.
        on_progress: called with the number of finished trainings and their total.

    Raises:
        DataError: there are too few rows to split; or as ``evaluate`` does.
    """
    configs = sobol_configs(task.space, points, seed)
    scores = np.full((2, points, len(splits)), np.nan)
    for k, split_seed in enumerate(splits):
        objective = task.objective(data, split_seed)
        for row, config in enumerate(configs):
            try:
                known = evaluate(config, split_seed) if evaluate else None
                scores[:, row, k] = known or objective(config)
            except DataError:
                raise
            except (ValueError, ArithmeticError):  # scikit-learn's for what cannot be trained
                pass
            if on_progress:
                on_progress(k * points + row + 1, points * len(splits))
    return Landscape(
        task=task.name,
        made_of=fingerprint(task, data, points, splits, seed),
        higher_is_better=task.score.higher_is_better,
        unit=task.score.unit(data.targets),
        configs=tuple(configs),
        splits=tuple(splits),
        validation=scores[0],
        test=scores[1],
    )


def fingerprint(task: Task, data: Data, points: int, splits: Sequence[int], seed: int) -> str:
    """Return the hash of task, space, score, data, points, splits and seed.

    It ignores scikit-learn's version, because scores already shown to a model must stay valid.
    """
    parts = [task.name, repr(task.space.parameters), task.score.name, data_digest(data)]
    return hashlib.sha256(json.dumps([*parts, points, list(splits), seed]).encode()).hexdigest()


def data_digest(data: Data) -> str:
    """Return the SHA-256 (hex) of the data's rows."""
    digest = hashlib.sha256()
    for array in (data.features, data.targets):
        if array.dtype == object:
            for text in array:
                digest.update(hashlib.sha256(str(text).encode()).digest())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sobol_configs(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """Return ``count`` evenly spread configurations from a scrambled Sobol sequence (Owen 1998).

    Values follow each parameter's own scale and are rounded to three digits, so that an agent can
    repeat them exactly. With the same seed, a longer sequence starts with the shorter one.
    """
    from scipy.stats import qmc

    rng = np.random.Generator(np.random.PCG64(seed))
    sequence = qmc.Sobol(len(space.parameters), scramble=True, rng=rng)
    with warnings.catch_warnings():
        # Its balance holds for powers of 2; a landscape of another size only is less even.
        warnings.simplefilter("ignore", UserWarning)
        configs = [space.at(point) for point in sequence.random(count)]
    return [_of_three_digits(space, config) for config in configs]


def _of_three_digits(space: Space, config: dict[str, Value]) -> dict[str, Value]:
    short = dict(config)
    for parameter in space.parameters:
        if isinstance(parameter, Number) and not parameter.integer:
            value = float(config[parameter.name])
            places = 2 - math.floor(math.log10(parameter.high - parameter.low))
            short[parameter.name] = parameter.clipped(
                float(f"{value:.3g}") if parameter.log else round(value, places)
            )
    return short


def has_headroom(
    landscape: Landscape, start: Config, split: int, evaluate: Callable[[Config, int], Evaluation]
) -> bool:
    """Return whether a configuration of the landscape beats ``start`` by more than its `noise`.

    It must do so on the validation and the test rows of the split: the best of 128 scores on
    either is better by chance alone. ``evaluate`` gives the scores that the landscape lacks. A
    start that cannot be trained leaves headroom.
    """
    sign = 1.0 if landscape.higher_is_better else -1.0
    first = sign * np.array(evaluate(start, split))
    if not np.isfinite(first).all():
        return True
    place = landscape.splits.index(split) if split in landscape.splits else None
    for row in np.argsort(-sign * landscape.means):  # a likely one first: each may be trained
        scores = (
            evaluate(landscape.configs[row], split)
            if place is None
            else [table[row, place] for table in (landscape.validation, landscape.test)]
        )
        if (sign * np.array(scores) - first > landscape.noise).all():
            return True
    return False


def normalised_regret(scores: ArrayLike, best: float, worst: float) -> Floats:
    """Return the regret of ``scores`` as a fraction of the range from best to worst.

    The result is (best - score) / (best - worst), clipped to 0..1, in the shape of ``scores``.

    The formula works in both directions: for errors ``best`` is the lower value. Scores outside the
    range become 0 or 1, and nan (a failure) becomes 1. All are .5 if best equals worst.

    >>> normalised_regret([0.9, 0.7, 0.5, 0.95], best=0.9, worst=0.5).round(3).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    values = np.asarray(scores, dtype=np.float64)
    if best == worst:
        return np.full(values.shape, 0.5)
    regret = np.clip((best - values) / (best - worst), 0.0, 1.0)
    return np.where(np.isnan(values), 1.0, regret)


def regrets(landscape: Landscape) -> Floats:
    """Return the regret of each configuration's mean test score; nan if there is no mean."""
    regret = normalised_regret(landscape.means, landscape.best, landscape.worst)
    return np.where(np.isnan(landscape.means), np.nan, regret)


Stratum = Literal["low", "neutral", "high"]
BOUNDS: dict[Stratum, tuple[float, float]] = {
    "low": (0.8, 1.0),
    "neutral": (0.45, 0.55),
    "high": (0.0, 0.2),
}
"""Map a stratum to its lowest and highest regret; its name says how good the start is."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Start:
    """A configuration that runs begin with, and the normalised regret of its mean test score."""

    config: Config
    regret: float


def members(landscape: Landscape, stratum: Stratum) -> NDArray[np.intp]:
    """Return the indices of a stratum's configurations, lowest regret first."""
    low, high = BOUNDS[stratum]
    regret = regrets(landscape)
    inside = np.flatnonzero((regret >= low) & (regret <= high))
    return inside[np.argsort(regret[inside], kind="stable")]


def start_of(landscape: Landscape, stratum: Stratum, seed: int) -> Start:
    """Return a random start from a stratum; raise DataError if there are too few, or none."""
    n_known = int(np.isfinite(landscape.means).sum())
    empty = [name for name in get_args(Stratum) if not len(members(landscape, name))]
    if n_known < _FEWEST or empty:
        fault = f"none with the regret of {' or '.join(empty)}" if n_known >= _FEWEST else "too few"
        raise DataError(
            f"Of the {n_known} configurations of {landscape.task} with scores there are {fault}; "
            "tabulate more points."
        )
    order = members(landscape, stratum)
    place = np.random.Generator(np.random.PCG64(seed)).integers(len(order))
    number = int(order[place])
    return Start(landscape.configs[number], float(regrets(landscape)[number]))
