"""Searches that look at no score: random and Sobol points, on each parameter's own scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contextcliff_dagster.experiments.visibility.baselines.search import Trial
from contextcliff_dagster.experiments.visibility.landscape.points import sobol_configs
from contextcliff_dagster.experiments.visibility.tasks.parameters import Config, Space, Value


class RandomSearch:
    """Uniform over positions, so log-uniform where the scale is (Bergstra, Bengio 2012)."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def propose(self, trials: Sequence[Trial]) -> Config:
        return self._space.at(self._rng.random(len(self._space.parameters)))


class SobolSearch:
    """Points of a scrambled Sobol sequence, one after another."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed
        self._points: list[dict[str, Value]] = []

    def propose(self, trials: Sequence[Trial]) -> Config:
        if len(self._points) < len(trials):
            self._points = sobol_configs(self._space, max(16, 2 * len(trials)), self._seed)
        return self._points[len(trials) - 1]
