"""Bin means of the scores that a study has besides its primary one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import mean_score
from contextcliff_dagster.contracts.results.fields import BinMean, BinResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

SCORES = ("em", "f1", "contained")


def other_scores(
    records: pd.DataFrame, bins: Sequence[BinResult], settings: AnalysisSettings, primary: str
) -> dict[str, list[BinMean]]:
    """Return score -> its means in ``bins``, with intervals over documents as the primary's.

    ``records``: EVAL_RECORDS of one model; those of `SCORES` that they have and that are not
    ``primary`` are given. Bins are by length, replicates averaged.
    """
    found = {}
    for place, name in enumerate(SCORES):
        if name == primary or name not in records or not (known := records[name].notna()).any():
            continue
        rows = records.loc[known, ["example_id", "document_id", "length_tokens", name]]
        examples = rows.groupby("example_id", sort=True).agg(
            document=("document_id", "first"), length=("length_tokens", "min"), score=(name, "mean")
        )
        starts = [b.edge_low for b in bins]
        index = np.searchsorted(starts, examples["length"].to_numpy(), side="right") - 1
        means = []
        for i, b in enumerate(bins):
            score = mean_score(examples[np.maximum(index, 0) == i], settings, place, i)
            means.append(BinMean(b.bin, score.n, score.mean, score.ci_low, score.ci_high))
        found[name] = means
    return found
