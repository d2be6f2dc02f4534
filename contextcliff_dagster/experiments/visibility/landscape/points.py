"""Configurations spread evenly over a space."""

from __future__ import annotations

import warnings

from contextcliff_dagster.experiments.visibility.tasks.parameters import Space, Value


def sobol_configs(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """Return ``count`` configurations of a scrambled Sobol sequence (Owen 1998).

    Points are drawn on each parameter's own scale, parameters in the order of their names. More
    points of the same seed begin with the fewer.

    Raises:
        ValueError: fewer than one.
    """
    import numpy as np
    from scipy.stats import qmc

    if count < 1:
        raise ValueError("at least one configuration")
    rng = np.random.Generator(np.random.PCG64(seed))
    sequence = qmc.Sobol(len(space.parameters), scramble=True, rng=rng)
    with warnings.catch_warnings():
        # Its balance holds for powers of 2; a landscape of another size only is less even.
        warnings.simplefilter("ignore", UserWarning)
        return [space.at(point) for point in sequence.random(count)]
