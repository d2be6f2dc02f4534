"""What might look like an effect of the format: evidence position, and tokens a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.experiments.utilization.analysis.curves import (
    correlation_of,
    mean_over_documents,
)
from contextcliff_dagster.experiments.utilization.benchmarks.data import BENCHMARKS
from contextcliff_dagster.experiments.utilization.curve_results import (
    PositionScore,
    TokensPerRecord,
)
from contextcliff_dagster.experiments.utilization.rendering.formats import Format

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

_THIRDS: tuple[Literal["first", "middle", "last"], ...] = ("first", "middle", "last")


def position_scores(
    base: pd.DataFrame, formats: Sequence[Format], settings: AnalysisSettings
) -> list[PositionScore]:
    """Scores by the third of the document that the evidence lies in; empty where unknown."""
    known = base[base["evidence_position"].notna() & base["score"].notna()]
    third = np.clip(np.floor(known["evidence_position"].astype(np.float64) * 3.0), 0, 2)
    found = []
    for format in formats if len(known) else ():
        correlation = correlation_of(base[base["format"] == format])
        for i, name in enumerate(_THIRDS):
            inside = known[(known["format"] == format) & (third == i)]
            score = mean_over_documents(inside, correlation, settings)
            found.append(
                PositionScore(
                    format=format,
                    third=name,
                    n=score.n,
                    mean=score.mean,
                    ci_low=score.ci_low,
                    ci_high=score.ci_high,
                )
            )
    return found


def tokens_per_record(base: pd.DataFrame, formats: Sequence[Format]) -> list[TokensPerRecord]:
    """Tokens a record of each format; documents of unknown record count are left out."""
    documents = base[base["records"].notna()].drop_duplicates(["format", "document_key"])
    found = []
    for benchmark in BENCHMARKS:
        reference = None
        for format in formats:
            mine = documents[
                (documents["benchmark"] == benchmark) & (documents["format"] == format)
            ]
            if not len(mine) or not mine["records"].sum():
                continue
            mean = float(mine["length_tokens"].sum() / mine["records"].sum())
            if format == formats[0]:
                reference = mean
            found.append(
                TokensPerRecord(
                    format=format,
                    benchmark=benchmark,
                    n_documents=len(mine),
                    mean=mean,
                    ratio=None if reference is None else mean / reference,
                )
            )
    return found
