"""Sizes of the context window that are measured."""

from __future__ import annotations

from contextcliff_dagster.contracts import StudyError

SMALLEST = 2048


def context_sizes(most: int, least: int = SMALLEST, divisions: int = 0) -> tuple[int, ...]:
    """Return tokens of the windows: ``least`` doubled up to ``most``, and points between.

    ``divisions``: points between two neighbours, equal steps of the ratio: 1 adds the geometric
    mean. ``most`` is the last size, whether or not it is a doubling of the first.

    Raises:
        StudyError: there is no size, or a number is out of its bounds.
    """
    if least < 1 or divisions < 0:
        raise StudyError(
            f"A smallest context of {least} tokens with {divisions} divisions cannot be; give at "
            "least 1 token and no negative number of divisions."
        )
    if most < least:
        raise StudyError(
            f"The largest context, {most:,} tokens, is below the smallest, {least:,}; raise one or "
            "lower the other."
        )
    doublings = [least]
    while doublings[-1] * 2 <= most:
        doublings.append(doublings[-1] * 2)
    steps = divisions + 1
    sizes = {round(size * 2 ** (part / steps)) for size in doublings for part in range(steps)} | {
        most
    }
    return tuple(sorted(size for size in sizes if size <= most))
