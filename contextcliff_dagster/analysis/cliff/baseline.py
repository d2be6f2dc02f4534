"""The region everything else is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.curves.cells import merge_cells
from contextcliff_dagster.analysis.statistics.intervals import document_interval

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


def baseline_of(documents: Documents, settings: AnalysisSettings) -> dict[str, Any]:
    """The ``baseline`` of ``cliffs.json``: the shortest 15% of the examples (or the share
    of ``settings``), whole documents.

    The interval resamples documents; ``n`` counts examples, ``to_tokens`` is the longest length in
    the region.
    """
    if not len(documents.n):
        return {"mean": None, "ci_low": None, "ci_high": None, "n": 0, "to_tokens": None}
    cells = merge_cells(documents, baseline_share=settings.baseline_share)
    to_tokens = int(cells.high[cells.baseline_cells - 1])
    inside = documents.length_tokens <= to_tokens
    n, s = documents.n[inside], documents.s[inside]
    interval = document_interval(
        n,
        s,
        confidence=settings.confidence,
        resamples=settings.resamples,
        rng=np.random.default_rng((settings.seed, 0, 1)),
    )
    low, high = interval or (None, None)
    mean = float(s.sum() / n.sum())
    return {"mean": mean, "ci_low": low, "ci_high": high, "n": int(n.sum()), "to_tokens": to_tokens}
