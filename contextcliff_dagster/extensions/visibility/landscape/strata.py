"""Starts of known quality: configurations by their regret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.visibility.landscape.table import Landscape, regrets
from contextcliff_dagster.extensions.visibility.tasks.parameters import Config

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
