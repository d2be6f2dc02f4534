"""Which levels are compared, and the runs that are equal in all but these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.extensions.visibility.axes import AXES, Level
from contextcliff_dagster.extensions.visibility.results import Contrast

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Ints
    from contextcliff_dagster.extensions.visibility.analysis.runs import Runs

_TEXTS: tuple[tuple[Contrast, str, str], ...] = (
    ("shown", "shown", "hidden"),
    ("length", "placebo", "hidden"),
    ("content", "shown", "placebo"),
)
_ORDER = ("hidden", "placebo", "shown", "last", "best", "default", "low", "neutral", "high")
VISIBLE = AXES[: AXES.index("base")]
"""Axes that change what an agent is shown, not where it begins and goes on."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A level of an axis and the one that it is compared with."""

    axis: str
    level: str
    reference: str
    contrast: Contrast

    @property
    def is_start(self) -> bool:
        """Whether it is of the start: a better one leaves less regret whatever is shown."""
        return self.axis == "start"


def ordered_levels(levels: Mapping[str, Sequence[Level]]) -> dict[str, list[str]]:
    """Return the levels of each axis as text, the one that shows least first."""
    return {
        axis: [str(one) for one in sorted(given, key=_rank)]  # a history by its number of steps
        for axis, given in levels.items()
    }


def _rank(level: Level) -> int:
    return level if isinstance(level, int) else _ORDER.index(level)


def comparisons_of(levels: Mapping[str, Sequence[Level]]) -> list[Comparison]:
    """Return every comparison of a study, axis by axis."""
    made = []
    for axis, given in ordered_levels(levels).items():
        if set(given) <= {"hidden", "placebo", "shown"}:
            texts = [one for one in _TEXTS if {one[1], one[2]} <= set(given)]
            made += [Comparison(axis, level, base, name) for name, level, base in texts]
        else:
            made += [Comparison(axis, level, given[0], "level") for level in given[1:]]
    return made


def widest_comparisons(levels: Mapping[str, Sequence[Level]]) -> list[Comparison]:
    """Return one comparison of each axis that varies: its last level with its first one."""
    varied = {axis: given for axis, given in ordered_levels(levels).items() if len(given) > 1}
    kept = {axis: [given[0], given[-1]] for axis, given in varied.items()}
    every = comparisons_of(levels)
    return [one for one in every if [one.reference, one.level] == kept[one.axis]]


def pairs_of(runs: Runs, comparison: Comparison) -> tuple[Ints, Ints]:
    """Return the runs at the level and those at the reference (P each), row by row equal in
    benchmark, seed and all other axes."""
    level, reference = _matched(runs, [comparison])
    return level, reference


def fours_of(runs: Runs, one: Comparison, other: Comparison) -> tuple[Ints, Ints, Ints, Ints]:
    """Return runs (F each) at both levels, ``one``'s reference, ``other``'s reference, both."""
    both, other_only, one_only, neither = _matched(runs, [one, other])
    return both, other_only, one_only, neither


def _matched(runs: Runs, comparisons: Sequence[Comparison]) -> tuple[Ints, ...]:
    """Runs at each corner; the level of the first comparison changes fastest."""
    varied = {one.axis for one in comparisons}
    fixed = [runs.levels[axis] for axis in AXES if axis not in varied]
    rest = list(zip(runs.cluster.tolist(), *(column.tolist() for column in fixed), strict=True))
    corners = []
    for number in range(2 ** len(comparisons)):
        inside = np.ones(len(runs.planned), bool)
        for place, one in enumerate(comparisons):
            level = one.reference if number >> place & 1 else one.level
            inside &= runs.levels[one.axis] == level
        corners.append({rest[row]: row for row in np.flatnonzero(inside).tolist()})
    shared = [key for key in corners[0] if all(key in corner for corner in corners)]
    return tuple(np.array([corner[key] for key in shared], np.int64) for corner in corners)
