"""Levels side by side: questions that need one place, and those that need several.

A model may lose the second kind long before the first: a simple and a complex cliff. Each kind is
concluded by itself, as if the others had not been asked, at the settings of the whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.conclusion import conclude
from contextcliff_dagster.analysis.statistics.intervals import bin_means
from contextcliff_dagster.contracts.results.questions import LevelResult

if TYPE_CHECKING:
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
    results = []
    for name, levels in groups:
        examples = sample.examples[column.isin(levels)].reset_index(drop=True)
        documents = replace(sample, examples=examples).documents()
        baseline = baseline_of(documents, settings)
        conclusion = conclude(documents, settings, baseline)
        cliff, cap = conclusion.finding.cliff, conclusion.cap
        location, low, high = (None, None, None) if cliff is None else cliff.tokens
        result = LevelResult(
            name=name,
            levels=levels,
            n=len(examples),
            n_documents=len(documents.n),
            verdict=conclusion.finding.verdict,
            safe_cap_tokens=cap.tokens,
            safe_cap_reason=cap.reason,
            baseline=baseline.mean,
            location_tokens=location,
            ci_low=low,
            ci_high=high,
            bins=bin_means(sample.bins, examples, settings, 4),
        )
        results.append(result)
    return results


def _groups(values: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Names and the values they hold; rows without a level are in none."""
    named = [value for value in values if value]
    try:
        simple = tuple(value for value in named if float(value) <= 1)
        complex_ = tuple(value for value in named if float(value) > 1)
    except ValueError:
        return [(value, (value,)) for value in named] if len(named) <= MOST_NAMED else []
    return [(n, v) for n, v in (("simple", simple), ("complex", complex_)) if v]
