"""A y axis on which usual prose has most of the room and a collapse still lies inside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.reporting.figures.style import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROWTH, _AIR = 0.06, 0.04


@dataclass(frozen=True, slots=True)
class UsualRange:
    """Linear from ``low`` to ``high``, logarithmic beyond; a tenth more never leaves the axes."""

    low: float
    high: float

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
    """Give ``axes`` limits that hold all ``values``; where some lie beyond ``usual``, a log scale.

    The usual range is then bounded by lines, and the outermost value is a tick.
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = min([usual.low, *known]), max([usual.high, *known])
    ends = usual.forward([low, high])
    air = _AIR * (ends[1] - ends[0])
    axes.set_yscale("function", functions=(usual.forward, usual.inverse))
    limits = usual.inverse([ends[0] - air, ends[1] + air])
    step = (usual.high - usual.low) / 5
    ticks = [usual.low + k * step for k in range(6)]
    for beyond, end in ((low < usual.low, low), (high > usual.high, high)):
        if beyond:
            ticks.append(end)
            edge = usual.low if end == low else usual.high
            axes.axhline(edge, color=FAINT, lw=1.4, zorder=1)
            axes.axhspan(edge, float(limits[0 if end == low else 1]), color=FAINT, alpha=0.25, lw=0)
    axes.set_yticks(sorted(ticks), [f"{tick:.3g}" for tick in sorted(ticks)])
    axes.set_ylim(*(limits[::-1] if invert else limits))
