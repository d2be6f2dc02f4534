"""The region everything else is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.curves.cells import merge_cells
from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts.results.cliffs import Baseline

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.records.samples import Documents
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings


def baseline_of(documents: Documents, settings: AnalysisSettings) -> Baseline:
    """The ``baseline`` of ``cliffs.json``: the shortest 15% of the examples (or the share
    of ``settings``), whole documents.

    The interval resamples documents; ``n`` counts examples, ``to_tokens`` is the longest length in
    the region.
    """
    if not len(documents.n):
        return Baseline(None, None, None, 0, None)
    cells = merge_cells(documents, baseline_share=settings.baseline_share)
    to_tokens = int(cells.high[cells.baseline_cells - 1])
    inside = documents.length_tokens <= to_tokens
    n, s = documents.n[inside], documents.s[inside]
    low, high = document_interval(n, s, settings, 0, 1)
    return Baseline(float(s.sum() / n.sum()), low, high, int(n.sum()), to_tokens)
