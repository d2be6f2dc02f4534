"""What the atlas that comes with the package knows of a model."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

from contextcliff_dagster.atlas.series import unit_words
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.reporting.wording.number_format import two_digits

_FILE = Path(__file__).with_name("known.json")


def known_of(model: str) -> dict[str, Any]:
    """Series of the models whose names contain ``model``, with their sources and their date.

    Raises:
        ContextCliffError: none does.
    """
    known, series = _known()
    asked = _bare(model.rpartition("/")[2])
    found = [one for one in series if any(asked in _bare(name) for name in one["names"])]
    if not found or not asked:
        names = sorted({one["model"] for one in series})
        near = ", ".join(difflib.get_close_matches(model[:60], names, 5, 0.0))
        raise ContextCliffError(
            f"No published outcomes of {model[:60]!r} are known; the nearest names of {len(names)} "
            f"are {near}."
        )
    cited = {one["source"]: known["sources"][one["source"]] for one in found}
    return {"gathered": known["gathered"], "sources": cited, "series": found}


def sampling_range(model: str, window: int | None = None) -> str | None:
    """The lengths worth sampling for a model, as a sentence; ``None`` where nothing is known.

    From a third of the shortest midpoint of a drop in tokens to twice the longest, of the series
    of this model (an identifier, with a date or without), or to its ``window``.
    """
    known, series = _known()
    name = model.rpartition("/")[2].casefold()
    places = [
        one["midpoint"][0]
        for one in series
        if one["midpoint"]
        and unit_words(one["unit"]) == "tokens"
        and any(re.fullmatch(rf"{re.escape(own)}(-\d[\w.-]*)?", name) for own in one["names"])
    ]
    if not places:
        return None
    low, high = two_digits(min(places)), two_digits(max(places))
    models = {one["model"] for one in series if name in one["names"]}
    windows = [known["windows"][one] for one in models if one in known["windows"]]
    most = min([2 * high, *windows, *([window] if window else [])])
    longest = two_digits(most)
    longest -= 10 ** (len(str(most)) - 2) if longest > most else 0
    where = f"between {low:,} and {high:,}" if low < high else f"at {low:,}"
    return (
        f"published outcomes put the midpoint of this model's drop {where} tokens, by task: sample "
        f"documents of {two_digits(low / 3):,} to {longest:,} tokens."
    )


def _bare(name: str) -> str:
    """Letters and digits alone: names are spelt with blanks, dots and hyphens."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _known() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    known = json.loads(_FILE.read_text(encoding="utf-8"))
    series = [dict(zip(known["keys"], row, strict=True)) for row in known["series"]]
    for one in series:
        others = [name for name, model in known["aliases"].items() if model == one["model"]]
        one["names"] = [name.casefold() for name in (one["model"], *others)]
    return known, series
