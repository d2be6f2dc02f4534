"""Levels side by side: questions that need one place, and those that need several.

A model may lose the second kind long before the first: a simple and a complex cliff. Each kind is
concluded by itself, as if the others had not been asked, at the settings of the whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.conclusion import conclude
from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts.results.fields import BinMean
from contextcliff_dagster.contracts.results.questions import LevelResult

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records.samples import Sample
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings

MOST_NAMED = 4
"""Levels that are names are compared where there are no more than this."""


def compare_levels(sample: Sample, settings: AnalysisSettings) -> list[LevelResult]:
    """One result a kind of level; empty where the records name none or only one."""
    if "level" not in sample.examples.columns:
        return []
    column = sample.examples["level"].astype(str)
    groups = _groups(sorted(set(column)))
    if len(groups) < 2:
        return []
    return [
        _result(name, levels, replace(sample, examples=_rows(sample, column, levels)), settings)
        for name, levels in groups
    ]


def _rows(sample: Sample, column: pd.Series[Any], levels: tuple[str, ...]) -> pd.DataFrame:
    return sample.examples[column.isin(levels)].reset_index(drop=True)


def _groups(values: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Names and the values they hold; rows without a level are in none."""
    named = [value for value in values if value]
    numbers = {value: _number(value) for value in named}
    if all(number is not None for number in numbers.values()):
        simple = tuple(v for v in named if (numbers[v] or 0.0) <= 1)
        complex_ = tuple(v for v in named if (numbers[v] or 0.0) > 1)
        return [(n, v) for n, v in (("simple", simple), ("complex", complex_)) if v]
    return [(value, (value,)) for value in named] if len(named) <= MOST_NAMED else []


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _result(
    name: str, levels: tuple[str, ...], sample: Sample, settings: AnalysisSettings
) -> LevelResult:
    documents = sample.documents()
    baseline = baseline_of(documents, settings).mean
    conclusion = conclude(documents, settings, baseline)
    cliff, cap = conclusion.finding.cliff, conclusion.cap
    place = None if cliff is None else cliff.location
    return LevelResult(
        name=name,
        levels=levels,
        n=len(sample.examples),
        n_documents=len(documents.n),
        verdict=conclusion.finding.verdict,
        safe_cap_tokens=cap.tokens,
        safe_cap_reason=cap.reason,
        baseline=baseline,
        location_tokens=None if place is None else round(place.value),
        ci_low=None if place is None else int(place.low),
        ci_high=None if place is None else int(np.ceil(place.high)),
        bins=tuple(_bin(sample, i, settings) for i in range(len(sample.bins))),
    )


def _bin(sample: Sample, index: int, settings: AnalysisSettings) -> BinMean:
    examples = sample.examples[sample.examples["bin_index"] == index]
    per_document = examples.groupby("document")["score"].agg(["size", "sum"])
    interval = document_interval(
        per_document["size"].to_numpy(np.float64),
        per_document["sum"].to_numpy(np.float64),
        confidence=settings.confidence,
        resamples=settings.resamples,
        rng=np.random.default_rng((settings.seed, 4, index)),
    )
    low, high = interval or (None, None)
    n = len(examples)
    mean = float(examples["score"].mean()) if n else None
    return BinMean(sample.bins[index].bin, n, mean, low, high)
