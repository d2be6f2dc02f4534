"""The answers of a model: which questions two formats have in common, and what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.contracts.results.json_form import Missing
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.rendering.formats import FORMATS, Format

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints


class Scale(NamedTuple):
    """A scale of the study: its label, and the tokens of the JSON rendering."""

    label: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of two formats; ``margin``: the difference up to which they count as alike."""

    a: Format
    b: Format
    benchmark: BenchmarkName | None
    scales: Sequence[Scale]
    margin: float
    settings: AnalysisSettings

    @property
    def key(self) -> tuple[int, int]:
        """Names random streams, whichever format comes first."""
        formats = sorted(FORMATS.index(one) for one in (self.a, self.b))
        place = 0 if self.benchmark is None else 1 + BENCHMARKS.index(self.benchmark)
        return place, formats[0] * len(FORMATS) + formats[1]


BASE = "base"
"""The arm that formats are compared in."""
NEEDED = ("benchmark", "format", "scale", "scale_tokens", "seed", "document_key")
_KEPT = [
    *("scale", "seed", "length_tokens", "question_kind", "records", "evidence_position"),
    *("expected", "missing"),
]
_KEYS = ["arm", "benchmark", "scale_tokens", "document_key", "format", "question"]


def clean_answers(records: pd.DataFrame, *, paired: bool = True) -> pd.DataFrame:
    """One row a question, format and arm, in an order of its own; replicates are averaged.

    Args:
        records: ``score`` (null: no answer), ``length_tokens``, `NEEDED`, and where known ``arm``,
            ``question`` (its number in the document, the same in all formats), ``question_kind``,
            ``records``, ``evidence_position``, ``expected``, ``failure``. Without ``question`` the
            number ends ``example_id`` (``-q2``), or questions are in its order.
        paired: whether the formats hold the same records, so that their right answers agree.

    Returns:
        These columns, with ``missing`` (the tag of a question without an answer, or ""). Scores
        are null where ``missing`` is set.

    Raises:
        ContextCliffError: a column is missing, a name is unknown, a score is outside 0..1, or one
            question has different right answers in two formats.
    """
    for column in (*NEEDED, "score", "length_tokens"):
        if column not in records.columns:
            raise ContextCliffError(
                f"Utilization records have no column {column!r}; score them with this version."
            )
    frame = records.copy()
    for column, known in (("benchmark", BENCHMARKS), ("format", FORMATS)):
        if unknown := sorted(set(frame[column]) - set(known)):
            raise ContextCliffError(
                f"Utilization records name the {column} {unknown[0]!r}; known are "
                f"{', '.join(known)}."
            )
    frame["arm"] = frame["arm"].fillna(BASE) if "arm" in frame else BASE
    if "question" not in frame:
        frame["question"] = _numbered(frame)
    for column in ("question_kind", "records", "evidence_position", "expected", "failure"):
        if column not in frame:
            frame[column] = None
    scores = frame["score"].astype(np.float64)
    if ((scores < 0.0) | (scores > 1.0)).any():
        raise ContextCliffError("A utilization score is outside 0..1.")
    tags = [tag.value for tag in UNSCORED_TAGS]
    unscored = frame["failure"].isin(tags)
    frame["score"] = scores.mask(unscored)
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


def _numbered(frame: pd.DataFrame) -> pd.Series[int]:
    if "example_id" not in frame:
        raise ContextCliffError(
            "Utilization records have neither a column 'question' nor 'example_id', so questions "
            "cannot be paired."
        )
    numbers = frame["example_id"].astype(str).str.extract(r"-q(\d+)$", expand=False)
    if numbers.notna().all():
        return numbers.astype(np.int64)
    names = frame["example_id"].astype("category").cat.codes
    of_document = [frame[column] for column in ("arm", "format", "document_key")]
    return names.groupby(of_document).rank(method="dense").astype(np.int64)


def _same_questions(rows: pd.DataFrame) -> None:
    """Raise where a question of the base has different right answers in two formats."""
    base = rows[(rows["arm"] == BASE) & rows["expected"].notna()]
    different = base.groupby(["document_key", "question"])["expected"].nunique()
    if (different > 1).any():
        key, number = different.index[int(np.argmax(different.to_numpy() > 1))]
        raise ContextCliffError(
            f"Question {number} of document {key!r} has different right answers in two formats: "
            "number the questions of a document alike in all formats (column 'question')."
        )


def missing_of(rows: pd.DataFrame) -> Missing:
    """Questions without an answer, by tag."""
    return Missing(
        **{tag.value: int((rows["missing"] == tag.value).sum()) for tag in UNSCORED_TAGS}
    )


@dataclass(frozen=True, eq=False)
class Side:
    """Questions with an answer under one condition; all arrays of length N.

    ``document`` is a number, dense and the same on both sides where paired; ``stratum`` (benchmark
    and scale) holds whole documents; ``scale`` indexes the scales compared.
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
        """The questions ``inside`` (N), documents numbered anew in the same order."""
        arrays = {name: getattr(self, name)[inside] for name in _ARRAYS}
        _, arrays["document"] = np.unique(arrays["document"], return_inverse=True)
        return replace(self, **arrays)

    def by_document(self) -> tuple[Floats, Floats, Ints]:
        """Questions, summed scores and stratum of each document (D)."""
        n = np.bincount(self.document).astype(np.float64)
        s: Floats = np.bincount(self.document, weights=self.score).astype(np.float64)
        stratum = np.zeros(len(n), np.int64)
        stratum[self.document] = self.stratum
        return n, s, stratum


_ARRAYS = ("document", "stratum", "scale", "seed", "question", "score", "tokens", "kind")


@dataclass(frozen=True, eq=False)
class Matched:
    """Two conditions on the same questions (``paired``: rows aligned), or on different documents.

    ``dropped``: questions by scale that are left out, since one condition or both have no answer.
    """

    a: Side
    b: Side
    paired: bool
    dropped: Ints

    def at_scale(self, scale: int) -> Matched:
        """The questions at one scale."""
        return self.where(self.a.scale == scale, self.b.scale == scale)

    def where(self, in_a: Bools, in_b: Bools) -> Matched:
        """The questions ``in_a`` and ``in_b``; both the same where paired."""
        return replace(self, a=self.a.at(in_a), b=self.b.at(in_b))


def match_rows(
    one: pd.DataFrame,
    other: pd.DataFrame,
    scales: Sequence[int],
    *,
    paired: bool,
    within_format: bool = False,
) -> Matched:
    """Match rows of `answers.clean_answers`, one condition each, by document and question.

    Args:
        scales: tokens of the scales, ascending; no row has another.
        paired: else every answer of either side is kept, and no document is the same.
        within_format: whether rows match only those of their own format.
    """
    import pandas as pd

    keys = ["benchmark", "scale_tokens", "document_key", "question"]
    if within_format:
        keys.append("format")
    columns = [*keys, "seed", "score", "length_tokens", "question_kind"]
    place = {tokens: i for i, tokens in enumerate(scales)}
    if paired:
        both = pd.merge(one[columns], other[columns], "outer", on=keys, suffixes=("", "_b"))
        both = both.sort_values(keys, ignore_index=True)
        there = (both["score"].notna() & both["score_b"].notna()).to_numpy(bool)
        lost = both.loc[~there, "scale_tokens"]
        kept = both[there]
        frames = [kept, kept.assign(score=kept["score_b"], length_tokens=kept["length_tokens_b"])]
    else:
        frames = [side[side["score"].notna()].sort_values(keys) for side in (one, other)]
        unanswered = [side.loc[side["score"].isna(), "scale_tokens"] for side in (one, other)]
        lost = pd.concat(unanswered)
    names = sorted({*one["benchmark"], *other["benchmark"]})
    a, b = (_side(frame, place, names) for frame in frames)
    dropped = np.bincount(lost.map(place).to_numpy(np.int64), minlength=len(scales))
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
