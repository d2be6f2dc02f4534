"""Calls to examples: replicates of one question on one document averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.records.categories import CATEGORIES

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Bools, Ints

EVIDENCE = ("evidence_position", "inter_evidence_tokens")
"""Where in its document the evidence of a question stands, and how far apart two pieces are."""


def average_replicates(calls: pd.DataFrame, answered: Bools) -> pd.DataFrame:
    """One row per example: replicates averaged; a record without an id stands for itself."""
    known: list[str] = [name for name in CATEGORIES if name in calls.columns]
    known += [name for name in EVIDENCE if calls[name].notna().any()]
    rows = calls.loc[answered, [*_OF_EXAMPLE, *known]].reset_index(drop=True)
    document, example = _units(rows)
    rows["document"] = document
    width = int(example.max()) + 1 if len(example) else 1
    key = document * width + example
    if (np.diff(np.sort(key)) > 0).all():
        examples = rows.assign(replicates=1, score_sd=np.nan)
    else:
        examples = rows.groupby(key, sort=False).agg(
            document=("document", "first"),
            document_id=("document_id", "first"),
            example_id=("example_id", "first"),
            length_tokens=("length_tokens", "min"),
            score=("score", "mean"),
            replicates=("score", "size"),
            score_sd=("score", "std"),
            failed=("failed", "mean"),
            em=("em", "mean"),
            f1=("f1", "mean"),
            contained=("contained", "mean"),
            bin_index=("bin_index", "min"),
            **{name: (name, "first") for name in known},
        )
        key = examples.index.to_numpy(np.int64)
    order = np.lexsort((key, examples["length_tokens"].to_numpy(np.int64)))
    return examples.take(order).reset_index(drop=True)


_OF_EXAMPLE = (
    "document_id", "example_id", "length_tokens", "score", "failed", "em", "f1", "contained",
    "bin_index",
)  # fmt: skip


def _units(rows: pd.DataFrame) -> tuple[Ints, Ints]:
    """Numbers of each row's document and example, in the order of their names.

    A row without an example's name is an example, one without a document's name a document of its
    own; those without a name come after the named.
    """
    own = np.arange(len(rows))
    example = _named(rows["example_id"], own)
    return _named(rows["document_id"], example), example


def _named(column: pd.Series[Any], otherwise: Ints) -> Ints:
    """Ranks of the names of ``column``; where there is none, ``otherwise`` behind all names."""
    names, codes = column.cat.categories, column.cat.codes.to_numpy(np.int64)
    out: Ints = np.where((names == "")[codes], len(names) + otherwise, codes)
    return out
