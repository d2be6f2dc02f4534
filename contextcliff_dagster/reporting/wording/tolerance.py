"""What a tolerance means in answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.wording.number_format import level, number
from contextcliff_dagster.reporting.wording.sentences import score_name

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_GROUPS = (10, 20, 50, 100, 1000)


def in_answers(tolerance: float) -> str:
    """A tolerance as a count of right answers, in the smallest round group that holds it.

    >>> in_answers(0.3), in_answers(0.25), in_answers(0.125)
    ('3 of 10', '5 of 20', '125 of 1,000')
    """
    for group in _GROUPS:
        lost = tolerance * group
        if abs(lost - round(lost)) < 1e-6:
            break
    return f"{round(lost):,} of {group:,}"


def tolerance_sentence(cliffs: Cliffs) -> str:
    """What the study's tolerance allows up to the cap; empty where none is stated."""
    if number(cliffs.tolerance) is None:
        return ""
    share, lost = level(cliffs.tolerance), in_answers(cliffs.tolerance)
    if cliffs.score.name in ("em", "contained"):
        return f"A drop of {share} means: up to {lost} right answers lost."
    return (
        f"A drop of {share} of the {score_name(cliffs)} is like losing up to {lost} right answers."
    )
