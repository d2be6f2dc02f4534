"""What a tolerance means in answers: true for the score in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.reporting.wording.number_format import level, score

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

RIGHT_OR_WRONG = frozenset({"em", "contained"})
"""Scores of which an answer has 0 or 1, so that their mean is a share of right answers."""
_MOST_EXAMPLES = 6
"""Of more models no figures are given: they would be a list to read."""
_OUT_OF = (10, 20, 100)


def lost_of(tolerance: float) -> tuple[int, int]:
    """How many of how many right answers ``tolerance`` (0..1) lets go, never more than it allows.

    >>> lost_of(0.3), lost_of(0.05), lost_of(0.125)
    ((3, 10), (1, 20), (125, 1000))
    """
    for base in _OUT_OF:
        if abs(tolerance * base - round(tolerance * base)) < 1e-9:
            return round(tolerance * base), base
    return int(tolerance * 1000 + 1e-9), 1000


def tolerance_sentences(results: Sequence[Cliffs], names: Sequence[str]) -> list[str]:
    """One sentence for each tolerance and kind of score among ``results``."""
    groups: dict[tuple[float, str], dict[str, list[str]]] = {}
    for name, result in zip(names, results, strict=True):
        kind = result.score.name if result.score.name in {*RIGHT_OR_WRONG, "f1"} else ""
        key = result.tolerance, "right" if kind in RIGHT_OR_WRONG else kind
        falls = groups.setdefault(key, {})
        base = result.baseline
        mean = base.mean if base.fitted is None else base.fitted
        floor = result.verdict is Verdict.FLOOR  # nothing can be lost there
        if mean is not None and not floor and len(results) <= _MOST_EXAMPLES:
            ends = score(mean), score(mean * (1 - result.tolerance))
            if ends[0] != ends[1]:
                fitted = base.mean is not None and score(base.mean) != ends[0]
                by = " by the fitted curve" if fitted else ""
                falls.setdefault(f"from {ends[0]} to {ends[1]}{by}", []).append(name)
    return [_sentence(*key, falls) for key, falls in groups.items()]


def _sentence(tolerance: float, kind: str, falls: Mapping[str, Sequence[str]]) -> str:
    head, here = f"A tolerance of {level(tolerance)} means", ""
    if len(falls) == 1:
        here = f", here {next(iter(falls))}"
    elif falls:
        each = [f"{', '.join(whose)} {fall}" for fall, whose in falls.items()]
        here = f" ({'; '.join(each)})"
    if kind == "right":
        lost, of = lost_of(tolerance)
        return (
            f"{head}: of every {of:,} answers that are right on short documents, up to {lost:,} "
            f"may be lost{here}."
        )
    if kind == "f1":
        return (
            f"{head}: token F1, the overlap in words with the accepted answer, may fall by up to "
            f"{level(tolerance)} of its mean on short documents{here}. That is no count of right "
            "answers: an answer may be right in part."
        )
    return (
        f"{head}: the mean score may fall by up to {level(tolerance)} of its mean on short "
        f"documents{here}."
    )
