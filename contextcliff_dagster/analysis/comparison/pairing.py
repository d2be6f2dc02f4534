"""The examples that two measurements share, and their documents: what a comparison is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.analysis.records.samples import clean_records
from contextcliff_dagster.contracts import LengthBin

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Floats, Ints


@dataclass(frozen=True)
class Side:
    """One measurement's documents, shortest first; arrays of length D.

    ``n`` examples and ``s``, the sum of their scores; ``binary``: every score is 0 or 1.
    """

    length_tokens: Ints
    n: Floats
    s: Floats
    bin_index: Ints
    binary: bool


@dataclass(frozen=True)
class Pairs:
    """Two measurements of the same documents, or of different ones.

    Attributes:
        paired: both answered the same examples; then ``a`` and ``b`` are aligned, document by
            document, and hold only what both answered.
        bins: in order of length.
        examples_a, examples_b: scores per example, aligned (E), where paired.
        example_document: row of its document (E), where paired.
        only_a, only_b: examples that the other has no answer to, or does not know.
        averaged: each document's answers were averaged, since they do not name their examples.
    """

    paired: bool
    a: Side
    b: Side
    bins: list[LengthBin]
    examples_a: Floats
    examples_b: Floats
    example_document: Ints
    only_a: int
    only_b: int
    averaged: bool = False


def pair_records(a: pd.DataFrame, b: pd.DataFrame, bins: Sequence[LengthBin]) -> Pairs:
    """Pair eval records of two measurements by example; lengths and bins are those of ``a``.

    Where a side names no examples, and both name documents, a document's answers are taken as those
    to one example. Where a side names no documents, examples are paired by their own names, if
    those are unique. Without a shared example the two are compared unpaired.

    Raises:
        ContextCliffError: records that cannot be analysed (see `records.samples.clean_records`).
    """
    import pandas as pd

    a, b, averaged = _by_document(a, b)
    sample_a = clean_records(a, bins)
    # Studies name their bins alike, whatever lengths they have: B's names say nothing of A's.
    sample_b = clean_records(b.drop(columns="bin", errors="ignore"), sample_a.bins)
    one, other = _named(sample_a.examples), _named(sample_b.examples)
    keys = ["document_id", "example_id"]
    named = [side[side["example_id"] != ""] for side in (one, other)]
    unique = not any(side["example_id"].duplicated().any() for side in named)
    if unique and sample_a.documents_known != sample_b.documents_known:
        keys = ["example_id"]
    both = pd.merge(
        named[0], named[1][[*keys, "document", "score"]], on=keys, suffixes=("_a", "_b")
    )
    only_b_names = sample_b.documents_known and not sample_a.documents_known
    both["document"] = both["document_b" if only_b_names else "document_a"]
    both = both.sort_values(["length_tokens", *keys], ignore_index=True)
    paired = len(both) > 0
    return Pairs(
        paired,
        _side(both, both["score_a"]) if paired else _side(one, one["score"]),
        _side(both, both["score_b"]) if paired else _side(other, other["score"]),
        sample_a.bins,
        both["score_a"].to_numpy(np.float64),
        both["score_b"].to_numpy(np.float64),
        _rows(both),
        only_a=len(one) - len(both),
        only_b=len(other) - len(both),
        averaged=averaged,
    )


def _by_document(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """Both with documents for examples, where that pairs them; whether any had several answers."""
    if all(_has(frame, "example_id") for frame in (a, b)):
        return a, b, False
    if not all(_has(frame, "document_id") for frame in (a, b)):
        return a, b, False
    if not set(a["document_id"].dropna()) & set(b["document_id"].dropna()):
        return a, b, False
    several = any(frame["document_id"].dropna().duplicated().any() for frame in (a, b))
    one, other = (frame.assign(example_id=frame["document_id"]) for frame in (a, b))
    return one, other, several


def _has(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _named(examples: pd.DataFrame) -> pd.DataFrame:
    columns = ["document", "document_id", "example_id", "length_tokens", "score", "bin_index"]
    return examples[columns].astype({"document_id": str, "example_id": str})


def _rows(frame: pd.DataFrame) -> Ints:
    """Row of each example's document, documents in order of length."""
    first = frame.groupby("document", sort=False)["length_tokens"].transform("min")
    order = np.lexsort((frame["document"].to_numpy(), first.to_numpy()))
    documents = frame["document"].to_numpy()[order]
    change = np.concatenate([[0], np.cumsum(documents[1:] != documents[:-1])])
    rows = np.empty(len(frame), dtype=np.int64)
    rows[order] = change
    return rows


def _side(frame: pd.DataFrame, score: pd.Series[float]) -> Side:
    row = _rows(frame)
    count = int(row.max()) + 1 if len(row) else 0
    n = np.bincount(row).astype(np.float64)
    s = np.bincount(row, weights=score.to_numpy(np.float64)).astype(np.float64)
    length = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(length, row, frame["length_tokens"].to_numpy(np.int64))
    place = np.full(count, -1, dtype=np.int64)
    place[row] = frame["bin_index"].to_numpy(np.int64)
    return Side(length, n, s, place, bool(score.isin((0.0, 1.0)).all()))
