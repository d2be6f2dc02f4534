"""The report as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown_report(
    cliffs: Sequence[Mapping[str, Any]], *, title: str, notes: Sequence[str] = (), picture: str | None = "report.png"
) -> str:
    """The page's text."""
    raise NotImplementedError
