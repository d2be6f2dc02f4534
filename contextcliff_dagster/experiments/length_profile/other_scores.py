"""Bin means of the scores that a study has besides its primary one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts.results.fields import BinMean, BinResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings

SCORES = ("em", "f1", "contained")


def other_scores(
    records: pd.DataFrame, bins: Sequence[BinResult], settings: AnalysisSettings, primary: str
) -> dict[str, list[BinMean]]:
    """Return score -> its means in ``bins``, with intervals over documents as the primary's.

    ``records``: EVAL_RECORDS of one model; those of `SCORES` that they have and that are not
    ``primary`` are given. Bins are by length, replicates averaged.
    """
    found = {}
    starts = [b.edge_low for b in bins]
    for place, name in enumerate(SCORES):
        if name == primary or name not in records or not (known := records[name].notna()).any():
            continue
        rows = records.loc[known, ["example_id", "document_id", "length_tokens", name]]
        examples = rows.groupby("example_id", sort=True).agg(
            document=("document_id", "first"), length=("length_tokens", "min"), score=(name, "mean")
        )
        places = np.searchsorted(starts, examples["length"].to_numpy(), side="right") - 1
        scores = examples["score"].to_numpy(np.float64)
        means = []
        for i, b in enumerate(bins):
            inside = np.maximum(places, 0) == i
            _, document = np.unique(examples["document"].to_numpy()[inside], return_inverse=True)
            sums = np.bincount(document, scores[inside]).astype(np.float64)
            counts = np.bincount(document).astype(np.float64)
            mean = float(scores[inside].mean()) if len(document) else None
            interval = document_interval(counts, sums, settings, place, i)
            means.append(BinMean(b.bin, len(document), mean, *interval))
        found[name] = means
    return found
