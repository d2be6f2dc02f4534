"""The report for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def machine_report(cliffs: Sequence[Mapping[str, Any]], *, title: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """All models' results, the map from bins to tokens, and versions, as plain JSON values."""
    raise NotImplementedError
