"""What the atlas that comes with the package knows of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ContextCliffError


def known_of(model: str) -> dict[str, Any]:
    """Series of the models whose names contain ``model``, with their sources and their date.

    Raises:
        ContextCliffError: none does.
    """
    known = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
    series = [dict(zip(known["keys"], row, strict=True)) for row in known["series"]]
    found = [one for one in series if model.casefold() in one["model"].casefold()]
    if not found or not model.strip():
        names = ", ".join(sorted({one["model"] for one in series}))
        raise ContextCliffError(f"No published outcomes of {model!r} are known; there are {names}.")
    cited = {one["source"]: known["sources"][one["source"]] for one in found}
    return {"gathered": known["gathered"], "sources": cited, "series": found}
