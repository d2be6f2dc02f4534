"""What the instrument says of each format: over tokens of its rendering, and over records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.cliff import (
    FLOOR,
    baseline_of,
    caps_at,
    conclude,
    limited_cap,
    missing_by_length,
)
from contextcliff_dagster.analysis.records import clean_records
from contextcliff_dagster.analysis.statistics.falling_curve import curve_points
from contextcliff_dagster.analysis.statistics.intervals import band_quantile, score_correlation
from contextcliff_dagster.contracts.results.json_form import MeanScore
from contextcliff_dagster.contracts.values import Verdict
from contextcliff_dagster.extensions.utilization.analysis.answers import missing_of
from contextcliff_dagster.extensions.utilization.analysis.comparison import mean_limits
from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.extensions.utilization.curve_results import (
    Axis,
    AxisCap,
    AxisPoint,
    AxisProfile,
    FormatCurve,
    ScaleScore,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import Format

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.extensions.utilization.analysis.answers import Scale

REPORTED_TOLERANCES = (0.10, 0.20, 0.30)


def format_curve(
    rows: pd.DataFrame,
    format: Format,
    benchmark: BenchmarkName | None,
    scales: Sequence[Scale],
    settings: AnalysisSettings,
) -> FormatCurve:
    """The scores of one format, by scale and over both axes.

    Args:
        rows: of `answers.clean_answers`, of this format and of ``benchmark`` where one is given.
    """
    correlation = correlation_of(rows)
    whole = mean_over_documents(rows, correlation, settings)
    answered = rows[rows["score"].notna()]
    return FormatCurve(
        format=format,
        benchmark=benchmark,
        n=whole.n,
        n_documents=answered["document_key"].nunique(),
        missing=missing_of(rows),
        mean=whole.mean,
        ci_low=whole.ci_low,
        ci_high=whole.ci_high,
        scales=[
            _at_scale(rows[rows["scale_tokens"] == scale.tokens], scale, correlation, settings)
            for scale in scales
        ],
        tokens=_profile(rows, "tokens", settings),
        records=_profile(rows, "records", settings),
    )


def at_floor(curve: FormatCurve) -> bool:
    """Whether almost nothing is right, at the shortest scale or at any: nothing can be lost."""
    means = [one.mean for one in curve.scales if one.mean is not None]
    begins_there = curve.tokens is not None and curve.tokens.verdict == Verdict.FLOOR
    return bool(means) and (begins_there or max(means) < FLOOR)


def correlation_of(rows: pd.DataFrame) -> float:
    """Of the scores of two questions on one document, pooled over benchmarks and scales."""
    answered = rows[rows["score"].notna()]
    strata = answered.groupby(["benchmark", "scale_tokens"]).ngroup()
    document = answered["document_key"].astype("category").cat.codes
    of_document, stratum = (of.to_numpy().astype(np.int64) for of in (document, strata))
    return score_correlation(of_document, answered["score"].to_numpy(np.float64), stratum)[0]


def mean_over_documents(
    rows: pd.DataFrame, correlation: float, settings: AnalysisSettings
) -> MeanScore:
    """The mean score of questions with an answer, with its score interval.

    Args:
        correlation: of two questions on one document (`correlation_of` all of its format).
    """
    answered = rows[rows["score"].notna()]
    if not len(answered):
        return MeanScore(0, None, None, None)
    n = answered.groupby("document_key").size().to_numpy().astype(np.int64)
    score = answered["score"].to_numpy(np.float64)
    low, high = mean_limits(score, n, correlation, band_quantile(settings.confidence, 1))
    mean = float(score.mean())
    return MeanScore(len(answered), mean, min(low, mean), max(high, mean))


def _at_scale(
    rows: pd.DataFrame, scale: Scale, correlation: float, settings: AnalysisSettings
) -> ScaleScore:
    score = mean_over_documents(rows, correlation, settings)
    documents = rows[rows["score"].notna()].drop_duplicates(["document_key"])
    records = documents["records"].dropna()
    return ScaleScore(
        scale=scale.label,
        scale_tokens=scale.tokens,
        tokens=round(float(documents["length_tokens"].mean())) if len(documents) else None,
        records=round(float(records.mean())) if len(records) else None,
        n=score.n,
        n_documents=len(documents),
        missing=int(rows["score"].isna().sum()),
        mean=score.mean,
        ci_low=score.ci_low,
        ci_high=score.ci_high,
    )


def _profile(rows: pd.DataFrame, axis: Axis, settings: AnalysisSettings) -> AxisProfile | None:
    """Verdict and cap over ``axis``; None without an answer, or where the axis is not known.

    Documents of a scale are made to the same length: they have its mean, so that the baseline is
    the whole of the shortest scale, not those documents of it that came out a little shorter.
    """
    import pandas as pd

    column = "length_tokens" if axis == "tokens" else "records"
    rows = rows[rows[column].notna()]
    lengths = rows.groupby(["benchmark", "scale_tokens"])[column].transform("mean").round()
    if not rows["score"].notna().any():
        return None
    sample = clean_records(
        pd.DataFrame(
            {
                "length_tokens": lengths.astype(np.int64),
                "score": rows["score"],
                "document_id": rows["document_key"],
                "example_id": rows["document_key"].astype(str) + "#" + rows["question"].astype(str),
                "failure": rows["missing"].where(rows["missing"] != "", None),
            }
        ),
        [],
    )
    documents = sample.documents()
    baseline = baseline_of(documents, settings)
    found = conclude(documents, settings, baseline)
    unanswered = missing_by_length(sample, settings)
    cap = limited_cap(found.cap, unanswered, settings)
    curve, drop = found.finding.curve, found.finding.cliff
    points = []
    if curve is not None:
        points = curve_points(curve, settings.confidence, found.finding.dip_window)
    tolerances = sorted({settings.tolerance, *REPORTED_TOLERANCES})
    at = None if drop is None else drop.location.tokens
    return AxisProfile(
        axis=axis,
        verdict=found.finding.verdict,
        cap=cap.tokens,
        cap_reason=cap.reason if axis == "tokens" else cap.reason.replace("tokens", "records"),
        caps=[
            AxisCap(tolerance, limited_cap(one, unanswered, settings).tokens)
            for tolerance, one in caps_at(found.finding, tolerances, settings, ())
        ],
        longest=int(documents.length_tokens[-1]),
        baseline=baseline.mean,
        baseline_to=baseline.to_tokens,
        drop_at=None if at is None else at[0],
        drop_at_low=None if at is None else at[1],
        drop_at_high=None if at is None else at[2],
        curve=[AxisPoint(p.tokens, p.mean, p.ci_low, p.ci_high) for p in points],
    )
