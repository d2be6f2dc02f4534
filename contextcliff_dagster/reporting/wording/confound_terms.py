"""Words and choices that the page and the picture about the questions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.questions import CategoryMix, Control

CONTROL_WORDS: dict[Control, str] = {"no_context": "no document", "oracle": "evidence alone"}
"""What is sent in the document's place."""


def shown_mix(result: Cliffs) -> CategoryMix | None:
    """Of the categories with a curve at an equal mix, that which moves it most; None without."""

    def moved(row: CategoryMix) -> float:
        pairs = ((b.mean, b.standardised) for b in row.bins)
        return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=-1.0)

    rows = [row for row in result.mix if moved(row) >= 0]
    return max(rows, key=moved, default=None)
