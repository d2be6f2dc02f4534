"""The FAILURE RISK REPORT of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def risk_report(cliffs: Mapping[str, Any]) -> str:
    """The report of one model."""
    raise NotImplementedError


def comparison_line(cliffs: Sequence[Mapping[str, Any]]) -> str:
    """All models in one line; empty for a single model."""
    raise NotImplementedError
