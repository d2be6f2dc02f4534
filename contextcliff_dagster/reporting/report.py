"""Write the report of a study: report.md, report.json and report.png, each temp-then-rename."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class ReportFiles(NamedTuple):
    """Where the three files lie."""

    md: Path
    json: Path
    png: Path


def write_report(
    cliffs: Sequence[Mapping[str, Any]],
    records: pd.DataFrame | None,
    directory: Path,
    *,
    title: str,
    notes: Sequence[str] = (),
) -> ReportFiles:
    """Render and write all three files into ``directory``."""
    raise NotImplementedError
