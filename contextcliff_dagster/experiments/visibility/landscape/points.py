"""Configurations spread evenly over a space."""

from __future__ import annotations

import math
import warnings

from contextcliff_dagster.experiments.visibility.tasks.parameters import Number, Space, Value


def sobol_configs(space: Space, count: int, seed: int) -> list[dict[str, Value]]:
    """Return ``count`` configurations of a scrambled Sobol sequence (Owen 1998).

    Points are drawn on each parameter's own scale, parameters in the order of their names, and
    have three digits: an agent that is shown one of them can write it again. More points of the
    same seed begin with the fewer.

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
