"""One row of statistics per length bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency.bin_latency import (
    KINDS,
    Canary,
    canary,
    spread_of,
    summary,
)
from contextcliff_dagster.analysis.statistics.dispersion import (
    bimodality,
    instability,
    rolling_variance,
)
from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts.results.fields import BinResult
from contextcliff_dagster.contracts.results.metrics import ExcessByKind

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts import LengthBin


def canaries_of(sample: Sample) -> dict[str, Canary]:
    """Times of all calls against their length, by kind."""
    return {kind: canary(sample.calls, kind) for kind in KINDS}


def bin_statistics(
    sample: Sample, settings: AnalysisSettings, canaries: Mapping[str, Canary]
) -> list[BinResult]:
    """The ``bins`` of ``cliffs.json``: every bin, empty ones with nulls.

    ``n`` counts examples with an answer (replicates averaged), ``missing`` calls without one.
    ``variance`` and ``sd`` are those of the example scores (population form, so that a 0/1 score
    has variance mean (1 - mean) and no SD exceeds 0.5); null below two examples. Intervals resample
    documents.
    """
    tagged = bool(sample.calls["failure"].ne("").any() or sample.calls["failed"].notna().any())
    calls = sample.calls[[*_OF_CALLS]].assign(ttft_excess=canaries["ttft"].excess)
    examples = sample.examples[[*_OF_EXAMPLES]]
    rows = [
        _bin_row(
            b,
            calls[calls["bin_index"] == i],
            examples[examples["bin_index"] == i],
            documents_known=sample.documents_known,
            tagged=tagged,
            settings=settings,
            rng=np.random.default_rng((settings.seed, i)),
        )
        for i, b in enumerate(sample.bins)
    ]
    rolling = rolling_variance([r.n for r in rows], [r.variance for r in rows], settings.rolling)
    return [replace(row, rolling_variance=value) for row, value in zip(rows, rolling, strict=True)]


# Taking a bin's rows costs by the column, and most columns are not needed here.
_OF_CALLS = ("bin_index", "answered", "failure", "ttft_ms", "duration_ms")
_OF_EXAMPLES = ("bin_index", "document", "length_tokens", "score", "score_sd", "failed")


def _bin_row(
    length_bin: LengthBin,
    calls: pd.DataFrame,
    examples: pd.DataFrame,
    *,
    documents_known: bool,
    tagged: bool,
    settings: AnalysisSettings,
    rng: np.random.Generator,
) -> BinResult:
    answered = calls[calls["answered"]]
    scores = examples["score"].to_numpy(np.float64)
    lengths = examples["length_tokens"].to_numpy(np.int64)
    n = len(scores)
    per_document = examples.groupby("document")["score"].agg(["size", "sum"])
    interval = document_interval(
        per_document["size"].to_numpy(np.float64),
        per_document["sum"].to_numpy(np.float64),
        confidence=settings.confidence,
        resamples=settings.resamples,
        rng=rng,
    )
    low, high = interval or (None, None)
    variance = float(scores.var()) if n > 1 else None
    tags = answered.loc[answered["failure"].ne(""), "failure"].value_counts()
    return BinResult(
        bin=length_bin.bin,
        n=n,
        n_documents=len(per_document) if documents_known else None,
        edge_low=length_bin.edge_low,
        edge_high=length_bin.edge_high,
        min_tokens=int(lengths.min()) if n else length_bin.min_tokens,
        median_tokens=int(np.median(lengths)) if n else length_bin.median_tokens,
        max_tokens=int(lengths.max()) if n else length_bin.max_tokens,
        mean=float(scores.mean()) if n else None,
        ci_low=low,
        ci_high=high,
        sd=None if variance is None else float(np.sqrt(variance)),
        variance=variance,
        failure_rate=_mean(examples["failed"]),
        failures={k: int(tags[k]) for k in sorted(tags.index) if tags[k]} if tagged else None,
        missing=int((~calls["answered"]).sum()),
        ci_width=None if low is None or high is None else high - low,
        rolling_variance=None,
        bimodality=bimodality(scores),
        instability=instability(examples["score_sd"].to_numpy(np.float64)),
        ttft_excess=_median(answered["ttft_excess"]),
        ttft_ms=summary(answered["ttft_ms"].to_numpy(np.float64)),
        duration_ms=summary(answered["duration_ms"].to_numpy(np.float64)),
    )


def latency_excess(sample: Sample, canaries: Mapping[str, Canary], index: int) -> ExcessByKind:
    """What the times of bin ``index`` exceed their length's by: per kind, see `spread_of`."""
    mine = sample.calls["bin_index"].to_numpy(np.int64) == index
    return ExcessByKind(**{kind: spread_of(canaries[kind].excess[mine]) for kind in KINDS})


def _mean(column: pd.Series[Any]) -> float | None:
    known = column.dropna()
    return float(known.mean()) if len(known) else None


def _median(column: pd.Series[Any]) -> float | None:
    known = column.dropna()
    return float(known.median()) if len(known) else None
