"""The report's picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def plot_report(cliffs: Sequence[Mapping[str, Any]], records: pd.DataFrame | None = None) -> bytes:
    """PNG bytes of score and SD against natural length, one curve per model."""
    raise NotImplementedError
