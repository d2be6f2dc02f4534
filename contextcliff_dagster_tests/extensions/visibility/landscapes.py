"""Landscapes of known shape, without training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contextcliff_dagster.extensions.visibility.landscape import Landscape, sobol_configs
from contextcliff_dagster.extensions.visibility.tasks.task import (
    Choice,
    Config,
    Evaluation,
    Floats,
    Objective,
    Space,
)


def landscape_of(
    space: Space,
    height: Callable[[Floats], float],
    *,
    noise: float = 0.0,
    higher_is_better: bool = True,
    points: int = 64,
    seed: int = 0,
) -> Landscape:
    """A landscape of 20 splits whose scores are ``height`` of the positions, and normal noise."""
    configs = sobol_configs(space, points, seed)
    rng = np.random.default_rng(seed)
    heights = np.array([height(space.positions(config)) for config in configs])[:, None]
    validation, test = heights + rng.normal(0, noise, (2, points, 20))
    return Landscape(
        task="planted",
        made_of="0" * 64,
        higher_is_better=higher_is_better,
        unit=1.0,
        configs=tuple(configs),
        splits=tuple(range(20)),
        validation=validation,
        test=test,
    )


def objective_of(landscape: Landscape, space: Space, split: int) -> Objective:
    """A function that looks up the scores of the nearest configuration on one split.

    Distances are Euclidean in `Space.positions`; different choices are at distance 1.
    """
    positions = np.array([space.positions(config) for config in landscape.configs])
    unordered = [isinstance(parameter, Choice) for parameter in space.parameters]

    def scores(config: Config) -> Evaluation:
        distances = np.abs(positions - space.positions(config))
        distances[:, unordered] = distances[:, unordered] > 1e-9
        nearest = int(np.argmin((distances**2).sum(axis=1)))
        known = landscape.validation[nearest, split], landscape.test[nearest, split]
        return Evaluation(*map(float, known))

    return scores
