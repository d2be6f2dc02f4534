"""From which context size on the averages come near the author's own text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextcliff_dagster.experiments.continuation.compat.averages import Round
from contextcliff_dagster.experiments.continuation.compat.metrics import METRICS

_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Convergence:
    """``sizes``: context sizes (tokens), ascending; ``near``: by metric, whether at each size."""

    tolerance: float
    sizes: tuple[int, ...]
    near: Mapping[str, tuple[bool, ...]]

    def first_size(self, metric: str) -> int | None:
        """The smallest size at which ``metric`` is near the author's figure."""
        pairs = zip(self.sizes, self.near[metric], strict=True)
        return next((size for size, near in pairs if near), None)

    def groups(self) -> list[list[str]]:
        """Metrics that come near at the same sizes: Jaccard index with the group's first over .7.

        Metrics that never do are in no group.
        """
        left = [metric for metric, near in self.near.items() if any(near)]
        out: list[list[str]] = []
        while left:
            first = left[0]
            alike = [m for m in left if _jaccard(self.near[first], self.near[m]) > _ALIKE]
            out.append(alike)
            left = [metric for metric in left if metric not in alike]
        return out


def convergence(
    averages: Mapping[int, Round], author: Round, tolerance: float = 0.1
) -> Convergence:
    """Compare averages by context size with the author's figures.

    Near is within ``tolerance`` (a share) of the author's figure. A figure of 0 is left out; a
    negative one is never near, since its bounds are the wrong way round in the reference.
    """
    sizes = tuple(sorted(averages))
    near = {
        metric: tuple(_is_near(averages[size].get(metric), aim, tolerance) for size in sizes)
        for metric in METRICS
        if isinstance(aim := author.get(metric), int | float) and aim
        if any(averages[size].get(metric) is not None for size in sizes)
    }
    return Convergence(tolerance, sizes, near)


def _is_near(value: float | None, aim: float, tolerance: float) -> bool:
    return value is not None and aim * (1 - tolerance) <= value <= aim * (1 + tolerance)


def _jaccard(one: Sequence[bool], other: Sequence[bool]) -> float:
    either = sum(a or b for a, b in zip(one, other, strict=True))
    return sum(a and b for a, b in zip(one, other, strict=True)) / either if either else 0.0
