"""Effects of the other conditions (arms) and of the benchmark, each with an interval.

And what might look like an effect of the format: evidence position, and tokens a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.contracts.results.json_form import nulls
from contextcliff_dagster.extensions.utilization.analysis.answers import BASE, Matched, match_rows
from contextcliff_dagster.extensions.utilization.analysis.comparison import (
    estimate_difference,
    likeness_of,
)
from contextcliff_dagster.extensions.utilization.analysis.curves import (
    correlation_of,
    mean_over_documents,
)
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS
from contextcliff_dagster.extensions.utilization.curve_results import (
    PositionScore,
    TokensPerRecord,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import Format
from contextcliff_dagster.extensions.utilization.results import Effect

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings


def effects_of(
    rows: pd.DataFrame,
    formats: Sequence[Format],
    scales: Sequence[int],
    settings: AnalysisSettings,
    base_levels: Mapping[str, str],
) -> list[Effect]:
    """Every arm against the base, and every benchmark against the others: all formats, then each.

    Arms are paired by document and question. Benchmarks are compared at the scales that both have,
    and their documents permuted within scale. One family of Holm.

    Args:
        base_levels: what an arm's key is in the base, by key; "base" where unknown.
    """
    of_formats: list[Format | None] = [None, *formats] if len(formats) > 1 else [*formats]
    found = []
    base = rows[rows["arm"] == BASE]
    for number, arm in enumerate(sorted(set(rows["arm"]) - {BASE})):
        factor, _, level = str(arm).partition("=")
        if "+" in str(arm):
            factor, level = "combination", str(arm)
        reference = base_levels.get(factor, BASE)
        changed = rows[rows["arm"] == arm]
        for place, format in enumerate(of_formats):
            one, other = (_of_format(side, format) for side in (changed, base))
            if not len(one):
                continue
            # Where the arm was not asked, the base has nothing to be compared with.
            other = other[other["document_key"].isin(one["document_key"])]
            matched = match_rows(one, other, scales, paired=True, within_format=True)
            effect = _effect(matched, settings, 20, number, place)
            found.append(
                replace(effect, factor=factor, level=level, reference=reference, format=format)
            )
    benchmarks = sorted(set(base["benchmark"]))
    for number, name in enumerate(benchmarks if len(benchmarks) > 1 else []):
        for place, format in enumerate(of_formats):
            inside = _of_format(base, format)
            mine = inside["benchmark"] == name
            effect = _effect(
                _against_others(inside[mine], inside[~mine], scales), settings, 21, number, place
            )
            found.append(
                replace(
                    effect,
                    factor="benchmark",
                    level=name,
                    reference="other benchmarks",
                    format=format,
                )
            )
    adjusted = holm([effect.p_value for effect in found])
    return [replace(effect, p_holm=p) for effect, p in zip(found, adjusted, strict=True)]


def _of_format(rows: pd.DataFrame, format: Format | None) -> pd.DataFrame:
    return rows if format is None else rows[rows["format"] == format]


def _against_others(mine: pd.DataFrame, others: pd.DataFrame, scales: Sequence[int]) -> Matched:
    matched = match_rows(mine, others, scales, paired=False)
    shared = np.intersect1d(matched.a.scale, matched.b.scale)
    matched = matched.where(np.isin(matched.a.scale, shared), np.isin(matched.b.scale, shared))
    a, b = (replace(side, stratum=side.scale) for side in (matched.a, matched.b))
    return replace(matched, a=a, b=b)


def _effect(matched: Matched, settings: AnalysisSettings, *key: int) -> Effect:
    found = estimate_difference(matched, likeness_of(matched), settings, *key)
    names = {"factor": "", "level": "", "reference": ""}
    dropped = int(matched.dropped.sum())
    if found is None:
        return nulls(Effect, **names, paired=matched.paired, n=0, n_documents=0, dropped=dropped)
    return Effect(
        **names,
        format=None,
        paired=matched.paired,
        n=len(matched.a.score),
        n_documents=int(matched.a.document.max()) + 1,
        dropped=dropped,
        mean=found.mean_a,
        mean_reference=found.mean_b,
        difference=found.difference,
        ci_low=found.ci_low,
        ci_high=found.ci_high,
        p_value=found.p_value,
        p_holm=None,
    )


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
