"""Answers of a model by format, and the curve and cap of each format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

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
from contextcliff_dagster.analysis.robustness import REPORTED_TOLERANCES
from contextcliff_dagster.analysis.statistics.falling_curve import curve_points
from contextcliff_dagster.analysis.statistics.intervals import (
    band_quantile,
    design_effect,
    score_correlation,
    wilson_limits,
)
from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.contracts.results.json_form import MeanScore, Missing
from contextcliff_dagster.contracts.values import Verdict
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS, Format
from contextcliff_dagster.extensions.utilization.results import (
    Axis,
    AxisCap,
    AxisPoint,
    AxisProfile,
    FormatCurve,
    ScaleScore,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


class Scale(NamedTuple):
    """A scale of the study: its label and its tokens in the JSON rendering."""

    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison of two formats; they count as equal up to a difference of ``margin``."""

    a: Format
    b: Format
    benchmark: BenchmarkName | None
    scales: Sequence[Scale]
    margin: float
    settings: AnalysisSettings

    @property
    def key(self) -> tuple[int, int]:
        """Return the name of the random stream, independent of the order of formats."""
        formats = sorted(FORMATS.index(format) for format in (self.a, self.b))
        place = 0 if self.benchmark is None else 1 + BENCHMARKS.index(self.benchmark)
        return place, formats[0] * len(FORMATS) + formats[1]


BASE = "base"
"""Arm in which formats are compared."""
_KEPT = [
    *("scale", "seed", "length_tokens", "question_kind", "records", "evidence_position"),
    *("expected", "missing"),
]
_KEYS = ["arm", "benchmark", "scale_tokens", "document_key", "format", "question"]


def clean_answers(records: pd.DataFrame, *, paired: bool = True) -> pd.DataFrame:
    """Return one row per question, format and arm, in a fixed order; replicates are averaged.

    Args:
        records: ``score`` (null: no answer), ``length_tokens``, ``benchmark``, ``format``,
            ``scale``, ``scale_tokens``, ``seed``, ``document_key``, and where known ``arm``,
            ``question_kind``, ``records``, ``evidence_position``, ``expected``, ``failure``; also
            ``question`` (its number in the document, the same in all formats), or else
            ``example_id``, which ends with it (``-q2``).
        paired: whether the formats hold the same records, so that right answers must agree.

    Returns:
        These columns and ``missing`` (the tag of a question without an answer, else ""). Scores
        are null if ``missing`` is set.

    Raises:
        ContextCliffError: one question has different right answers in two formats.
    """
    frame = records.copy()
    frame["arm"] = frame["arm"].fillna(BASE) if "arm" in frame else BASE
    if "question" not in frame:
        numbers = frame["example_id"].astype(str).str.extract(r"-q(\d+)$", expand=False)
        frame["question"] = numbers.astype(np.int64)
    for column in ("question_kind", "records", "evidence_position", "expected", "failure"):
        if column not in frame:
            frame[column] = None
    unscored = frame["failure"].isin([tag.value for tag in UNSCORED_TAGS])
    frame["score"] = frame["score"].astype(np.float64).mask(unscored)
    # Of replicates without an answer the first tag by name, so that no row order matters.
    frame["missing"] = frame["failure"].where(unscored, "transport_error").astype(str)
    frame = frame.sort_values([*_KEYS, "missing", "score"], kind="stable", ignore_index=True)
    grouped = frame.groupby(_KEYS, sort=True)
    rows = grouped[_KEPT].first()
    rows["score"] = grouped["score"].mean()
    rows = rows.reset_index()
    rows["missing"] = rows["missing"].where(rows["score"].isna(), "")
    if paired:
        _same_questions(rows)
    return rows


def _same_questions(rows: pd.DataFrame) -> None:
    """Raise ContextCliffError if a base question has different right answers in two formats."""
    base = rows[(rows["arm"] == BASE) & rows["expected"].notna()]
    different = base.groupby(["document_key", "question"])["expected"].nunique()
    if (different > 1).any():
        key, number = different.index[int(np.argmax(different.to_numpy() > 1))]
        raise ContextCliffError(
            f"Question {number} of document {key!r} has different right answers in two formats: "
            "number the questions of a document alike in all formats (column 'question')."
        )


@dataclass(frozen=True, eq=False)
class Side:
    """Questions with an answer under one condition; all arrays have length N.

    ``document`` numbers the documents densely, and identically on both sides if paired;
    ``stratum`` (benchmark and scale) holds whole documents; ``scale`` indexes the compared scales.
    """

    document: Ints
    stratum: Ints
    scale: Ints
    seed: Ints
    question: Ints
    score: Floats
    tokens: Floats
    kind: NDArray[np.str_]

    def at(self, inside: Bools) -> Side:
        """Return the questions selected by ``inside`` (N), with documents renumbered in order."""
        arrays = {name: getattr(self, name)[inside] for name in _ARRAYS}
        _, arrays["document"] = np.unique(arrays["document"], return_inverse=True)
        return replace(self, **arrays)

    def by_document(self) -> tuple[Floats, Floats, Ints]:
        """Return the number of questions, the summed score and the stratum of each document (D)."""
        n = np.bincount(self.document).astype(np.float64)
        s: Floats = np.bincount(self.document, weights=self.score).astype(np.float64)
        stratum = np.zeros(len(n), np.int64)
        stratum[self.document] = self.stratum
        return n, s, stratum


_ARRAYS = ("document", "stratum", "scale", "seed", "question", "score", "tokens", "kind")


@dataclass(frozen=True, eq=False)
class Matched:
    """Two conditions on the same questions (``paired``, rows aligned) or on different documents.

    ``dropped``: number of questions by scale that lack an answer under one or both conditions.
    """

    a: Side
    b: Side
    paired: bool
    dropped: Ints

    def at_scale(self, scale: int) -> Matched:
        """Return the questions at one scale."""
        return self.where(self.a.scale == scale, self.b.scale == scale)

    def where(self, in_a: Bools, in_b: Bools) -> Matched:
        """Return the questions selected by ``in_a`` and ``in_b``, which are equal if paired."""
        return replace(self, a=self.a.at(in_a), b=self.b.at(in_b))


def match_rows(
    one: pd.DataFrame,
    other: pd.DataFrame,
    scales: Sequence[int],
    *,
    paired: bool,
    within_format: bool = False,
) -> Matched:
    """Return the rows of two conditions from `clean_answers`, matched by document and question.

    Args:
        scales: tokens of the scales, ascending; every row has one of them.
        paired: whether rows are matched; if not, all answers are kept and no document is shared.
        within_format: whether rows only match rows of the same format.
    """
    import pandas as pd

    keys = ["benchmark", "scale_tokens", "document_key", "question"]
    if within_format:
        keys.append("format")
    columns = [*keys, "seed", "score", "length_tokens", "question_kind"]
    place = {tokens: i for i, tokens in enumerate(scales)}
    if paired:
        pairs = pd.merge(one[columns], other[columns], "outer", on=keys, suffixes=("", "_b"))
        pairs = pairs.sort_values(keys, ignore_index=True)
        answered = (pairs["score"].notna() & pairs["score_b"].notna()).to_numpy(bool)
        lost_scales = pairs.loc[~answered, "scale_tokens"]
        kept = pairs[answered]
        frames = [kept, kept.assign(score=kept["score_b"], length_tokens=kept["length_tokens_b"])]
    else:
        frames = [side[side["score"].notna()].sort_values(keys) for side in (one, other)]
        unanswered = [side.loc[side["score"].isna(), "scale_tokens"] for side in (one, other)]
        lost_scales = pd.concat(unanswered)
    names = sorted({*one["benchmark"], *other["benchmark"]})
    a, b = (_side(frame, place, names) for frame in frames)
    dropped = np.bincount(lost_scales.map(place).to_numpy(np.int64), minlength=len(scales))
    return Matched(a, b, paired, dropped)


def _side(frame: pd.DataFrame, place: dict[int, int], names: Sequence[str]) -> Side:
    scale: Ints = frame["scale_tokens"].map(place).to_numpy().astype(np.int64)
    number = {name: i for i, name in enumerate(names)}
    benchmark: Ints = frame["benchmark"].map(number).to_numpy().astype(np.int64)
    document = frame.groupby(["benchmark", "scale_tokens", "document_key"], sort=True).ngroup()
    return Side(
        document.to_numpy().astype(np.int64),
        benchmark * len(place) + scale,
        scale,
        frame["seed"].to_numpy(np.int64),
        frame["question"].to_numpy(np.int64),
        frame["score"].to_numpy(np.float64),
        frame["length_tokens"].to_numpy(np.float64),
        frame["question_kind"].fillna("").to_numpy(np.str_),
    )


def format_curve(
    rows: pd.DataFrame,
    format: Format,
    benchmark: BenchmarkName | None,
    scales: Sequence[Scale],
    settings: AnalysisSettings,
) -> FormatCurve:
    """Return the scores of one format by scale, and its profiles over both axes.

    Args:
        rows: rows of `clean_answers` of this format, and of ``benchmark`` if one is given.
    """
    correlation = correlation_of(rows)
    answered = rows[rows["score"].notna()]
    return FormatCurve(
        format=format,
        benchmark=benchmark,
        **asdict(mean_over_documents(rows, correlation, settings)),
        n_documents=answered["document_key"].nunique(),
        missing=Missing.of(rows["missing"]),
        scales=[
            _at_scale(rows[rows["scale_tokens"] == scale.tokens], scale, correlation, settings)
            for scale in scales
        ],
        tokens=_profile(rows, "tokens", settings),
        records=_profile(rows, "records", settings),
    )


def at_floor(curve: FormatCurve) -> bool:
    """Return whether almost no answer is right at the shortest scale or at all scales."""
    means = [scale.mean for scale in curve.scales if scale.mean is not None]
    begins_there = curve.tokens is not None and curve.tokens.verdict == Verdict.FLOOR
    return bool(means) and (begins_there or max(means) < FLOOR)


def correlation_of(rows: pd.DataFrame) -> float:
    """Return the correlation of scores within a document, pooled over benchmarks and scales."""
    answered = rows[rows["score"].notna()]
    strata = answered.groupby(["benchmark", "scale_tokens"]).ngroup()
    document = answered["document_key"].astype("category").cat.codes
    of_document, stratum = (of.to_numpy().astype(np.int64) for of in (document, strata))
    return score_correlation(of_document, answered["score"].to_numpy(np.float64), stratum)[0]


def mean_over_documents(
    rows: pd.DataFrame, correlation: float, settings: AnalysisSettings
) -> MeanScore:
    """Return the mean score of questions with an answer, and its score interval.

    Args:
        correlation: correlation within a document (`correlation_of` all rows of its format).
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
    answered = rows[rows["score"].notna()]
    documents = (answered if len(answered) else rows).drop_duplicates(["document_key"])
    tokens, records = (documents[column].dropna() for column in ("length_tokens", "records"))
    return ScaleScore(
        scale=scale.label,
        scale_tokens=scale.tokens,
        tokens=round(float(tokens.mean())) if len(tokens) else None,
        records=round(float(records.mean())) if len(records) else None,
        **asdict(mean_over_documents(rows, correlation, settings)),
        n_documents=answered["document_key"].nunique(),
        missing=int(rows["score"].isna().sum()),
    )


def _profile(rows: pd.DataFrame, axis: Axis, settings: AnalysisSettings) -> AxisProfile | None:
    """Return verdict and cap over ``axis``; None without an answer or without known lengths.

    All documents of a scale get its mean length, because they are made to the same length. The
    baseline is then the whole shortest scale, not only its slightly shorter documents.
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
    conclusion = conclude(documents, settings, baseline)
    unanswered = missing_by_length(sample, settings)
    cap = limited_cap(conclusion.cap, unanswered, settings)
    curve, drop = conclusion.finding.curve, conclusion.finding.cliff
    points = []
    if curve is not None:
        points = curve_points(curve, settings.confidence, conclusion.finding.dip_window)
    tolerances = sorted({settings.tolerance, *REPORTED_TOLERANCES})
    at = None if drop is None else drop.location.tokens
    return AxisProfile(
        axis=axis,
        verdict=conclusion.finding.verdict,
        cap=cap.tokens,
        cap_reason=cap.reason if axis == "tokens" else cap.reason.replace("tokens", "records"),
        caps=[
            AxisCap(tolerance, limited_cap(level_cap, unanswered, settings).tokens)
            for tolerance, level_cap in caps_at(conclusion.finding, tolerances, settings, ())
        ],
        longest=int(documents.length_tokens[-1]),
        baseline=baseline.mean,
        baseline_to=baseline.to_tokens,
        drop_at=None if at is None else at[0],
        drop_at_low=None if at is None else at[1],
        drop_at_high=None if at is None else at[2],
        curve=[AxisPoint(p.tokens, p.mean, p.ci_low, p.ci_high) for p in points],
    )


def mean_limits(score: Floats, n: Ints, correlation: float, z: float) -> tuple[float, float]:
    """Return Wilson limits (1927) of a mean score, based on the effective number of questions.

    Args:
        score: score of each question (N), at least one.
        n: number of questions of each document (D).

    >>> low, high = mean_limits(np.ones(40), np.full(10, 4), 0.2, 1.96)
    >>> round(low, 2), round(high, 2)
    (0.87, 1.0)
    """
    low, high = wilson_limits(float(score.mean()), len(score) / design_effect(n, correlation), z)
    return max(low, 0.0), min(high, 1.0)
