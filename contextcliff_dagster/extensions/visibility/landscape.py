"""Scores over a task's whole space: many configurations on many splits, measured once.

Starts of known quality are drawn from them. Where they are kept: `kept_landscapes`.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Config,
    Data,
    Evaluation,
    Floats,
    Number,
    Objective,
    Space,
    Task,
    Value,
)

if TYPE_CHECKING:
    pass

POINTS, SPLITS = 128, 20


@dataclass(frozen=True)
class Landscape:
    """Scores over a space; arrays are configurations x splits, nan where training failed.

    Attributes:
        task: its name.
        made_of: hash of all that the scores depend on, see `fingerprint`.
        higher_is_better: the direction of the score.
        unit: what a difference of 1 is in scores, see `tasks.scores.Score.unit`.
        configs: the configurations.
        splits: seeds of the splits, and of the models on them.
        validation: scores on the rows that a search sees.
        test: scores on the rows that are reported.
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
        """Mean test score of each configuration; nan where a training failed on any split."""
        return np.asarray(self.test.mean(axis=1))

    @cached_property
    def best(self) -> float:
        """The best mean test score; nan where there is none."""
        return self._extreme(self.higher_is_better)

    @cached_property
    def worst(self) -> float:
        """The worst mean test score; nan where there is none."""
        return self._extreme(not self.higher_is_better)

    def _extreme(self, highest: bool) -> float:
        known = self.means[np.isfinite(self.means)]
        if not len(known):
            return float("nan")
        return float(known.max() if highest else known.min())

    def objective(self, space: Space, split: int) -> Objective:
        """Return the scores on one split, those of the nearest configuration for any other.

        Nearest by the Euclidean distance of `Space.positions`; another choice is a distance of 1.
        """
        known = np.array([space.positions(config) for config in self.configs])
        unordered = space.without_order()

        def scores(config: Config) -> Evaluation:
            apart = np.abs(known - space.positions(config))
            apart[:, unordered] = apart[:, unordered] > 1e-9
            nearest = int(np.argmin((apart**2).sum(axis=1)))
            return Evaluation(
                float(self.validation[nearest, split]), float(self.test[nearest, split])
            )

        return scores


def tabulate(
    task: Task,
    data: Data,
    *,
    points: int = POINTS,
    splits: Sequence[int] = range(SPLITS),
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Landscape:
    """Train ``points`` Sobol configurations on every split, and return their scores.

    A configuration that scikit-learn cannot train has nan.

    Args:
        seed: of the Sobol sequence.
        on_progress: gets how many trainings are done, of how many.

    Raises:
        DataError: the data are too few to be split.
    """
    configs = sobol_configs(task.space, points, seed)
    scores = np.full((2, points, len(splits)), np.nan)
    for k, split_seed in enumerate(splits):
        objective = task.objective(data, split_seed)
        for row, config in enumerate(configs):
            try:
                scores[:, row, k] = objective(config)
            except (ValueError, ArithmeticError):  # scikit-learn's for what cannot be trained
                continue
        if on_progress:
            on_progress((k + 1) * points, points * len(splits))
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
    """Return the hash of task, space, data, points and splits.

    Not of scikit-learn's version: a score that was measured, and shown to a model, stays.
    """
    parts = [task.name, repr(task.space.parameters), task.score.name, data_digest(data)]
    return hashlib.sha256(json.dumps([*parts, points, list(splits), seed]).encode()).hexdigest()


def data_digest(data: Data) -> str:
    """Return the SHA-256 (hex) of the rows."""
    digest = hashlib.sha256()
    for array in (data.features, data.targets):
        if array.dtype == object:
            for text in array:
                digest.update(hashlib.sha256(str(text).encode()).digest())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sobol_configs(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """Return ``count`` configurations spread evenly: a scrambled Sobol sequence (Owen 1998).

    Points are drawn on each parameter's own scale, parameters in the order of their names, and
    have three digits: an agent that is shown one of them can write it again. More points of the
    same seed begin with the fewer.

    Raises:
        ValueError: fewer than one.
    """
    from scipy.stats import qmc

    if count < 1:
        raise ValueError("at least one configuration")
    rng = np.random.Generator(np.random.PCG64(seed))
    sequence = qmc.Sobol(len(space.parameters), scramble=True, rng=rng)
    with warnings.catch_warnings():
        # Its balance holds for powers of 2; a landscape of another size only is less even.
        warnings.simplefilter("ignore", UserWarning)
        drawn = [space.at(point) for point in sequence.random(count)]
    return [_of_three_digits(space, one) for one in drawn]


def _of_three_digits(space: Space, config: dict[str, Value]) -> dict[str, Value]:
    short = dict(config)
    for one in space.parameters:
        if isinstance(one, Number) and not one.integer:
            value = float(config[one.name])
            places = 2 - math.floor(math.log10(one.high - one.low))
            short[one.name] = one.clipped(
                float(f"{value:.3g}") if one.log else round(value, places)
            )
    return short


def normalised_regret(scores: ArrayLike, best: float, worst: float) -> Floats:
    """Return how far ``scores`` are from the best one known, of what there was to gain.

    That is (best - score) / (best - worst) within 0 and 1, of the same shape as ``scores``.

    The formula has its own direction: for errors ``best`` is the lower one. Scores beyond the two,
    which a landscape of some configurations allows, have 0 or 1; failed ones (nan) have 1. Where
    best and worst are equal, all have .5.

    >>> normalised_regret([0.9, 0.7, 0.5, 0.95], best=0.9, worst=0.5).round(3).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    given = np.asarray(scores, dtype=np.float64)
    if best == worst:
        return np.full(given.shape, 0.5)
    regret = np.clip((best - given) / (best - worst), 0.0, 1.0)
    return np.where(np.isnan(given), 1.0, regret)


def regrets(landscape: Landscape) -> Floats:
    """Return the regret of each configuration's mean test score; nan where it has none."""
    regret = normalised_regret(landscape.means, landscape.best, landscape.worst)
    return np.where(np.isnan(landscape.means), np.nan, regret)


Stratum = Literal["low", "neutral", "high"]
BOUNDS: dict[Stratum, tuple[float, float]] = {
    "low": (0.8, 1.0),
    "neutral": (0.45, 0.55),
    "high": (0.0, 0.2),
}
"""Least and greatest regret; names say how good the start is."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Start:
    """A configuration to begin with.

    Attributes:
        score: mean test score.
        regret: normalised regret of that.
        percentile: share of configurations that score no better.
    """

    config: Config
    score: float
    regret: float
    percentile: float
    stratum: Stratum


def members(landscape: Landscape, stratum: Stratum) -> NDArray[np.intp]:
    """Return the configurations of a stratum, by their numbers, lowest regret first."""
    low, high = BOUNDS[stratum]
    regret = regrets(landscape)
    inside = np.flatnonzero((regret >= low) & (regret <= high))
    return inside[np.argsort(regret[inside], kind="stable")]


def start_of(landscape: Landscape, stratum: Stratum, seed: int | None = None) -> Start:
    """Return a start of a stratum: one drawn by ``seed``, or without a seed the middle one.

    Raises:
        DataError: fewer than four configurations have scores, or a stratum has none.
    """
    known = int(np.isfinite(landscape.means).sum())
    empty = [name for name in get_args(Stratum) if not len(members(landscape, name))]
    if known < _FEWEST or empty:
        what = f"none with the regret of {' or '.join(empty)}" if known >= _FEWEST else "too few"
        raise DataError(
            f"Of the {known} configurations of {landscape.task} with scores there are {what}; "
            "tabulate more points."
        )
    order = members(landscape, stratum)
    place = len(order) // 2
    if seed is not None:
        place = int(np.random.Generator(np.random.PCG64(seed)).integers(len(order)))
    number = int(order[place])
    regret = regrets(landscape)
    return Start(
        config=landscape.configs[number],
        score=float(landscape.means[number]),
        regret=float(regret[number]),
        percentile=float((regret >= regret[number]).sum() / known),
        stratum=stratum,
    )
