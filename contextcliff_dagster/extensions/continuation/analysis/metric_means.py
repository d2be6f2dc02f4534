"""Means of each prose metric and rates of recitation over context size, without tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.contrast import AGREE, ClusterMeans
from contextcliff_dagster.extensions.continuation.analysis.arm import round_means
from contextcliff_dagster.extensions.continuation.analysis.outcomes import (
    clean_outcomes,
    mean_known,
)
from contextcliff_dagster.extensions.continuation.prose.words import ChanceOverlap, Overlap
from contextcliff_dagster.extensions.continuation.results import (
    ArmMetric,
    ArmRecitation,
    AuthorMetric,
    MetricResult,
    MetricSize,
    Recitation,
    RecitedSize,
)
from contextcliff_dagster.extensions.continuation.tables import COHERENCE, METRICS
from contextcliff_dagster.reporting.wording import count, percent, tokens

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Floats, Ints
    from contextcliff_dagster.extensions.continuation.analysis.outcomes import ArmOutcomes
    from contextcliff_dagster.extensions.continuation.noise import Authors
    from contextcliff_dagster.extensions.continuation.results import ContinuationResult


def with_metrics(
    result: ContinuationResult, rows: pd.DataFrame, authors: Authors, settings: AnalysisSettings
) -> ContinuationResult:
    """Return ``result`` with `metrics`, `recitation` and warnings about recitation added.

    Args:
        result: the result for these rows.
        rows: rows as for `outcomes.clean_outcomes`, with the columns of the metrics; a missing
            column counts as not measured.
        authors: author passages of the study.
        settings: confidence, seed and number of resamples.
    """
    arms = clean_outcomes(rows, [arm.arm for arm in result.arms])
    figures = authors.author_metrics()
    recitation = recitation_of(rows, result, authors.chance_overlap())
    metrics = [
        MetricResult(
            name=name,
            author=_author(
                _authors_in(rows, name) if name in COHERENCE else [row.get(name) for row in figures]
            ),
            arms=[
                ArmMetric(
                    arm=arm.arm,
                    sizes=_sizes(rows, name, arm, settings.confidence),
                )
                for arm in arms
            ],
        )
        for name in METRICS
        if name != "words"
    ]
    warnings = [*result.warnings, *recitation_warnings(recitation)]
    return replace(result, metrics=metrics, recitation=recitation, warnings=warnings)


def _authors_in(rows: pd.DataFrame, name: str) -> list[float]:
    """Return the authors' values from the records: for each passage, that over the most words."""
    column = f"author_{name}"
    if column not in rows.columns:
        return []
    measured = rows[rows[column].notna()].sort_values("compared_words", kind="stable")
    longest: list[float] = measured.groupby(["text", "passage"])[column].last().tolist()
    return longest


def _author(values: Sequence[float | None]) -> AuthorMetric | None:
    figures = [value for value in values if value is not None]
    if not figures:
        return None
    return AuthorMetric(
        n_passages=len(figures),
        mean=float(np.mean(figures)),
        sd=float(np.std(figures, ddof=1)) if len(figures) > 1 else None,
    )


def _values(rows: pd.DataFrame, arm: ArmOutcomes, name: str) -> Floats:
    """Return the metric in the shape of the arm's outcomes (P, S, R), NaN if missing."""
    values = np.full(arm.intact.shape, np.nan)
    if name not in rows.columns:
        return values
    place = {key: number for number, key in enumerate(arm.passages)}
    _, turn = np.unique(rows["round"].to_numpy(), return_inverse=True)
    in_arm = (rows["arm"].astype(str) == arm.arm).to_numpy(bool)
    part = rows[in_arm]
    passage = [place[str(t), str(p)] for t, p in zip(part["text"], part["passage"], strict=True)]
    size = np.searchsorted(arm.sizes, part["context_tokens"].to_numpy(np.int64))
    values[passage, size, turn[in_arm]] = part[name].to_numpy(np.float64, na_value=np.nan)
    return values


def _sizes(rows: pd.DataFrame, name: str, arm: ArmOutcomes, confidence: float) -> list[MetricSize]:
    values = _values(rows, arm, name)
    means = mean_known(values)
    sizes = []
    for size, context_tokens in enumerate(arm.sizes):
        present = means[~np.isnan(means[:, size]), size]
        low, high = _interval(means[:, size], arm.clusters(), name, confidence)
        sizes.append(
            MetricSize(
                context_tokens=int(context_tokens),
                n=int((~np.isnan(values[:, size])).sum()),
                n_passages=len(present),
                mean=float(present.mean()) if len(present) else None,
                ci_low=low,
                ci_high=high,
                rounds=round_means(values[:, size]),
            )
        )
    return sizes


def _interval(
    values: Floats, clusters: Ints, name: str, confidence: float
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval within the metric's bounds; None twice if clusters do not differ."""
    means = ClusterMeans.of(values, clusters)
    if means is None or means.standard_error <= AGREE * max(abs(means.mean), 1.0):
        return None, None
    least = -1.0 if name in _SIGNED else 0.0
    return means.interval(confidence, (least, 1.0 if name in _SIGNED | _SHARES else np.inf))


_SIGNED = frozenset({"rhythm", *COHERENCE})
_SHARES = frozenset(
    {
        *("diversity_50", "diversity_200", "repetition_50", "repetition_200"),
        *("long_words", "function_words", "broken_articles", "pronouns", "shared_content"),
    }
)


COMMON = 0.05
"""Fraction of recited continuations at one context size from which the report warns."""
_LEAST = 2


def recitation_of(
    rows: pd.DataFrame, result: ContinuationResult, chance: ChanceOverlap
) -> Recitation | None:
    """Count the recited continuations of each arm and size; return None without data.

    A continuation is recited if its overlap with the author's text exceeds chance overlap.

    ``rows`` have the columns `longest_run` and `shared_runs` of the records. ``chance`` is measured
    on human passages of the study.
    """
    if not chance.pairs or not {"longest_run", "shared_runs"} <= set(rows.columns):
        return None
    measured = rows[rows["longest_run"].notna()]
    recited = [
        chance.is_recited(Overlap(int(run), None if share != share else float(share)))
        for run, share in zip(
            measured["longest_run"], measured["shared_runs"].astype("float64"), strict=True
        )
    ]
    cells = measured.assign(recited=recited).groupby(["arm", "context_tokens"])["recited"]
    counts: dict[Any, Any] = cells.agg(["size", "sum"]).to_dict("index")
    return Recitation(
        chance_run=chance.longest_run,
        chance_share=chance.shared_runs,
        chance_pairs=chance.pairs,
        arms=[
            ArmRecitation(
                arm=arm.arm,
                sizes=[_size(size, counts.get((arm.arm, size), {})) for size in result.sizes],
            )
            for arm in result.arms
        ],
    )


def _size(tokens: int, counts: Mapping[Any, int]) -> RecitedSize:
    n, recited = int(counts.get("size", 0)), int(counts.get("sum", 0))
    return RecitedSize(context_tokens=tokens, n=n, recited=recited)


def recitation_warnings(recitation: Recitation | None) -> Sequence[str]:
    """Return a warning for each arm that often recites the text at some size."""
    if recitation is None:
        return []
    pairs = count(recitation.chance_pairs, "pair")
    warnings = []
    for arm in recitation.arms:
        shares = [(size.recited / size.n, size) for size in arm.sizes if size.recited >= _LEAST]
        share, most = max(shares, key=lambda size: size[0], default=(0.0, None))
        if most is None or share < COMMON:
            continue
        warnings.append(
            f"Arm {arm.arm} recites: {most.recited:,} of {most.n:,} continuations ({percent(share)}"
            f") at {tokens(most.context_tokens)} tokens overlap more with the author's own next "
            f"text than any of {pairs} of human passages do. The model knows the text, so nearness "
            "to the author reflects memory rather than the context."
        )
    return warnings
