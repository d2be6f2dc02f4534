"""Caps by earlier versions of the method or of the scorers: what a new report says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.store import read_result

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

_VERSIONS = {"method": METHOD_VERSION, "scorers": SCORER_VERSION}


def method_of(cliffs: Cliffs) -> str:
    """Return the version of the method that found the cap."""
    return cliffs.method_version or "1"


def scorers_of(cliffs: Cliffs) -> str:
    """Return the version of the scorers that gave the scores."""
    return cliffs.scorer_version or "1"


def replaced(path: Path, hashes: Mapping[str, Any]) -> dict[str, Any]:
    """What the provenance of a new profile says of the one in the folder ``path``: the other
    versions, of method or scorers, that made it of the same answers (``hashes``), and its cap."""
    from contextcliff_dagster.contracts.results import Cliffs

    try:
        before = read_result(path / "cliffs.json", Cliffs)
    except StoreError:  # none, or a damaged one
        return {}
    return earlier_cap(before) if before.provenance["hashes"] == hashes else {}


def earlier_cap(cliffs: Cliffs) -> dict[str, Any]:
    """The entry ``replaces`` of a provenance, where other versions made ``cliffs`` or what it names
    itself; else nothing."""
    versions = {"method": method_of(cliffs), "scorers": scorers_of(cliffs)}
    if versions == _VERSIONS:
        known = cliffs.provenance.get("replaces")
        return {"replaces": known} if known else {}
    return {"replaces": {**versions, "safe_cap_tokens": cliffs.safe_cap_tokens}}


def replaced_note(cliffs: Cliffs) -> str | None:
    """The sentence on an earlier cap of the same answers, found by another method or scorers."""
    if not (known := cliffs.provenance.get("replaces")):
        return None
    earlier = cast("dict[str, Any]", known)
    changed = [
        f"version {earlier[what]} of the {what} (now {version})"
        for what, version in _VERSIONS.items()
        if earlier[what] != version
    ]
    cap = earlier["safe_cap_tokens"]
    return (
        f"An earlier report on the same answers of {cliffs.model}, by "
        f"{' and '.join(changed) or 'other versions'}, gave "
        f"{'no cap' if cap is None else f'a cap of {cap:,} tokens'}: the two are not comparable."
    )
