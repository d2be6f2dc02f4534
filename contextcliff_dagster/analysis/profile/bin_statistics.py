"""Statistics per length bin, the spread of scores among them, and the sums of what calls cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.latency.bin_latency import KINDS, Canary, spread_of, summary
from contextcliff_dagster.analysis.records.samples import average_replicates
from contextcliff_dagster.analysis.statistics.intervals import mean_score
from contextcliff_dagster.contracts.results.fields import BinResult
from contextcliff_dagster.contracts.results.metrics import BinMetrics, ExcessByKind, Totals

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats

# Taking a bin's rows costs by the column, and most columns are not needed here.
_OF_CALLS = ("bin_index", "answered", "failure", "ttft_ms", "duration_ms")
_OF_EXAMPLES = ("bin_index", "document", "length_tokens", "score", "score_sd", "failed")
_SUMMED = (
    "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_usd",
    "duration_ms",
)  # fmt: skip
_SCORES = ("em", "f1", "contained")


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
    all_calls = sample.calls[[*_OF_CALLS]].assign(ttft_excess=canaries["ttft"].excess)
    all_examples = sample.examples[[*_OF_EXAMPLES]]
    delivered = _delivered(sample)
    rows = []
    for i, length_bin in enumerate(sample.bins):
        calls = all_calls[all_calls["bin_index"] == i]
        examples = all_examples[all_examples["bin_index"] == i]
        answered = calls[calls["answered"]]
        scores = examples["score"].to_numpy(np.float64)
        lengths = examples["length_tokens"].to_numpy(np.int64)
        score = mean_score(examples, settings, i)
        low, high = score.ci_low, score.ci_high
        variance = float(scores.var()) if len(scores) > 1 else None
        tags = answered.loc[answered["failure"].ne(""), "failure"].value_counts()
        row = BinResult(
            bin=length_bin.bin,
            n=score.n,
            n_documents=examples["document"].nunique() if sample.documents_known else None,
            edge_low=length_bin.edge_low,
            edge_high=length_bin.edge_high,
            min_tokens=int(lengths.min()) if score.n else length_bin.min_tokens,
            median_tokens=int(np.median(lengths)) if score.n else length_bin.median_tokens,
            max_tokens=int(lengths.max()) if score.n else length_bin.max_tokens,
            mean=score.mean,
            ci_low=low,
            ci_high=high,
            sd=None if variance is None else float(np.sqrt(variance)),
            variance=variance,
            failure_rate=_known(examples["failed"], "mean"),
            failures={k: int(tags[k]) for k in sorted(tags.index) if tags[k]} if tagged else None,
            missing=int((~calls["answered"]).sum()),
            ci_width=None if low is None or high is None else high - low,
            rolling_variance=None,
            bimodality=bimodality(scores),
            instability=instability(examples["score_sd"].to_numpy(np.float64)),
            ttft_excess=_known(answered["ttft_excess"], "median"),
            ttft_ms=summary(answered["ttft_ms"].to_numpy(np.float64)),
            duration_ms=summary(answered["duration_ms"].to_numpy(np.float64)),
            delivered_mean=None if len(answered) == len(calls) else float(delivered[i]),
        )
        rows.append(row)
    rolling = rolling_variance([r.n for r in rows], [r.variance for r in rows], settings.rolling)
    return [replace(row, rolling_variance=value) for row, value in zip(rows, rolling, strict=True)]


def _delivered(sample: Sample) -> dict[int, float]:
    """Mean score by bin if each missing answer scores 0; empty where none is missing."""
    answered = sample.calls["answered"]
    if answered.all():
        return {}
    calls = sample.calls.assign(score=sample.calls["score"].where(answered, 0.0))
    examples = average_replicates(calls, np.ones(len(calls), bool))
    return dict(examples.groupby("bin_index")["score"].mean())


def latency_excess(sample: Sample, canaries: Mapping[str, Canary], index: int) -> ExcessByKind:
    """What the times of bin ``index`` exceed their length's by: per kind, see `spread_of`."""
    mine = (sample.calls["bin_index"] == index).to_numpy()
    return ExcessByKind(
        **{
            kind: spread_of(canaries[kind].excess[mine], canaries[kind].late_ms[mine])
            for kind in KINDS
        }
    )


def totals_of(calls: pd.DataFrame) -> Totals:
    """Sums over all calls; null where no record carries the column."""
    sums: dict[str, Any] = {name: _known(calls[name], "sum") for name in _SUMMED}
    for name, value in sums.items():
        if name.endswith("_tokens") and value is not None:
            sums[name] = int(value)
    return Totals(**sums)


def bin_metrics(row: BinResult, excess: ExcessByKind, index: int, sample: Sample) -> BinMetrics:
    """A bin's row with the means of all three scores and what its calls cost."""
    calls = sample.calls.loc[sample.calls["bin_index"] == index, [*_SUMMED]]
    examples = sample.examples.loc[sample.examples["bin_index"] == index, [*_SCORES]]
    added: dict[str, Any] = {name: _known(examples[name], "mean") for name in _SCORES}
    added |= asdict(totals_of(calls))
    del added["duration_ms"]
    return BinMetrics(
        **{one.name: getattr(row, one.name) for one in fields(BinResult)},
        **added,
        calls=len(calls),
        latency_excess=excess,
    )


def _known(column: pd.Series[Any], statistic: str) -> float | None:
    """The mean, median or sum of what is not null, if anything."""
    known = column.dropna()
    return float(getattr(known, statistic)()) if len(known) else None


_LEAST_FOR_SHAPE = 8
_LEAST_BETWEEN = 0.05


def bimodality(scores: Floats) -> float | None:
    """Sarle's bimodality coefficient: (g^2 + 1) / (k + 3 (n - 1)^2 / ((n - 2)(n - 3))).

    g and k are the sample skewness and excess kurtosis (SAS, Cluster procedure; Pfister et al.
    2013). A uniform distribution gives 5/9; larger values suggest two modes. ``None`` where it
    would say nothing: fewer than 8 scores, no spread, or fewer than 5% strictly between 0 and 1
    (0/1 scores have two modes by construction).
    """
    n = len(scores)
    if n < _LEAST_FOR_SHAPE or np.mean((scores > 0) & (scores < 1)) < _LEAST_BETWEEN:
        return None
    centred = scores - scores.mean()
    m2 = float(np.mean(centred**2))
    if m2 < 1e-12:
        return None
    g1 = float(np.mean(centred**3)) / m2**1.5
    g2 = float(np.mean(centred**4)) / m2**2 - 3.0
    skewness = g1 * np.sqrt(n * (n - 1)) / (n - 2)
    kurtosis = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * g2 + 6)
    return float((skewness**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def instability(replicate_sd: Floats) -> float | None:
    """Mean over examples of the SD between their replicates; ``None`` without replicates.

    Args:
        replicate_sd: sample SD of each example's replicates, NaN for a single one.

    >>> instability(np.array([0.25, 0.75, np.nan]))
    0.5
    """
    known = replicate_sd[np.isfinite(replicate_sd)]
    return float(known.mean()) if len(known) else None


def rolling_variance(
    counts: list[int], variances: list[float | None], window: int
) -> list[float | None]:
    """Variance within bins, pooled by n over each bin and the ``window - 1`` before it."""
    pooled: list[float | None] = []
    for end in range(1, len(counts) + 1):
        at = slice(max(0, end - window), end)
        near = [(n, v) for n, v in zip(counts[at], variances[at], strict=True) if v is not None]
        total = sum(n for n, _ in near)
        pooled.append(sum(n * v for n, v in near) / total if total else None)
    return pooled
