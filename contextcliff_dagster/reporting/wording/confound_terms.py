"""Words and choices that the page and the picture about the questions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.reporting.wording.number_format import number
from contextcliff_dagster.reporting.wording.sentences import parts

CATEGORY_WORDS = {
    "task": "tasks",
    "kind": "kinds of question",
    "level": "levels",
    "domain": "domains",
    "source": "sources",
    "evidence_position": "places of the evidence",
}

_CONTROLS = {"no_context": "no document", "oracle": "evidence alone"}


def control_words(name: str) -> str:
    """A control's short name: what stands in the document's place."""
    return _CONTROLS.get(name, name)


def shown_mix(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of the categories with a curve at an equal mix, that which moves it most; None without."""

    def moved(row: Mapping[str, Any]) -> float:
        pairs = ((number(b.get("mean")), number(b.get("standardised"))) for b in parts(row, "bins"))
        return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=-1.0)

    rows = [row for row in parts(result, "mix") if moved(row) >= 0]
    return max(rows, key=moved, default=None)
