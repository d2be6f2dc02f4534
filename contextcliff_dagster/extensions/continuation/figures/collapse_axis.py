"""A y axis on which usual prose has most of the room and a collapse still lies inside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.reporting.figures.house import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROWTH, _AIR = 0.06, 0.04


@dataclass(frozen=True, slots=True)
class UsualRange:
    """Linear from ``low`` to ``high``, logarithmic beyond."""

    low: float
    high: float

    def stretched(self, values: Iterable[float]) -> UsualRange:
        """The range with those of ``values`` that are not further off than it is wide."""
        width = self.high - self.low
        near = [x for x in values if self.low - width <= x <= self.high + width]
        return UsualRange(min([self.low, *near]), max([self.high, *near]))

    def forward(self, y: Any) -> NDArray[Any]:
        """Values to heights: the usual range is 0 to 1."""
        u = (np.asarray(y, dtype=float) - self.low) / (self.high - self.low)
        beyond = np.where(u > 1, u - 1, np.where(u < 0, u, 0.0))
        outside = np.sign(beyond) * _GROWTH * np.log1p(np.abs(beyond) / _GROWTH)
        return np.asarray(np.clip(u, 0, 1) + outside)

    def inverse(self, heights: Any) -> NDArray[Any]:
        """Heights to values."""
        h = np.asarray(heights, dtype=float)
        beyond = np.where(h > 1, h - 1, np.where(h < 0, h, 0.0))
        outside = np.sign(beyond) * _GROWTH * np.expm1(np.abs(beyond) / _GROWTH)
        return np.asarray((np.clip(h, 0, 1) + outside) * (self.high - self.low) + self.low)


def collapse_axis(axes: Axes, usual: UsualRange, values: Iterable[float], *, invert: bool) -> None:
    """Give ``axes`` limits that hold all ``values``; where some lie far off, a log scale for them.

    The linear range ends at a line there, and the outermost value is a tick.
    """
    from matplotlib.ticker import MaxNLocator

    known = [value for value in values if math.isfinite(value)]
    linear = usual.stretched(known)
    low, high = min([linear.low, *known]), max([linear.high, *known])
    ends = linear.forward([low, high])
    air = _AIR * (ends[1] - ends[0])
    axes.set_yscale("function", functions=(linear.forward, linear.inverse))
    limits = linear.inverse([ends[0] - air, ends[1] + air])
    ticks = [
        float(tick)
        for tick in MaxNLocator(6).tick_values(linear.low, linear.high)
        if linear.low - 1e-9 <= tick <= linear.high + 1e-9
    ]
    for end, edge, limit in ((low, linear.low, limits[0]), (high, linear.high, limits[1])):
        if end != edge:
            ticks.append(end)
            axes.axhline(edge, color=FAINT, lw=1.4, zorder=1)
            axes.axhspan(edge, float(limit), color=FAINT, alpha=0.25, lw=0)
    axes.set_yticks(sorted(ticks), [f"{tick:.3g}" for tick in sorted(ticks)])
    axes.set_ylim(*(limits[::-1] if invert else limits))
