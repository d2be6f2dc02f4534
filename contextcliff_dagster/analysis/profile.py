"""Eval records of one model to its metrics and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.context import ModelProfile, ProfileContext
from contextcliff_dagster.analysis.settings import AnalysisSettings
from contextcliff_dagster.contracts import LengthBin

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AnalysisSettings", "ModelProfile", "ProfileContext", "profile_model"]


def profile_model(
    records: pd.DataFrame,
    bins: Sequence[LengthBin],
    settings: AnalysisSettings,
    context: ProfileContext,
) -> ModelProfile:
    """Analyse the records of one model."""
    raise NotImplementedError
