"""Records of one model as questions with a score, whole documents kept together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.contracts.results.fields import Missing
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS
from contextcliff_dagster.extensions.utilization.rendering.formats import FORMATS

if TYPE_CHECKING:
    import pandas as pd


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
