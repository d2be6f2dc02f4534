"""The two grids that users of context-eval know, as levels of the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_BOTH = ("hidden", "shown")

GRIDS: Mapping[str, Mapping[str, Sequence[str | int]]] = {
    "48": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": _BOTH,
        "bounds": ("hidden",),
        "direction": ("hidden",),
        "history": (0, 5),
        "start": ("default",),
    },
    "144": {
        "task": _BOTH,
        "metric": _BOTH,
        "resources": ("hidden",),
        "bounds": _BOTH,
        "direction": ("hidden",),
        "history": (0, 4),
        "start": ("low", "neutral", "high"),
    },
}
"""Runs of one benchmark at three seeds -> levels by axis."""
RUN_STEPS, GRID_SEEDS, GRID_STEPS = 3, 3, 10


def levels_of(given: Sequence[str]) -> dict[str, list[str | int]]:
    """Return the levels of ``AXIS=LEVEL,LEVEL`` by axis.

    Raises:
        ValueError: a sentence that says which one is none.
    """
    from contextcliff_dagster.experiments.visibility.axes import AXES

    levels: dict[str, list[str | int]] = {}
    for one in given:
        axis, _, values = one.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if axis not in AXES or not parts:
            raise ValueError(
                f"{one!r} is no axis with levels; write as in direction=hidden,shown, with one of "
                f"{', '.join(AXES)}."
            )
        levels[axis] = [int(part) if part.isdecimal() else part for part in parts]
    return levels
