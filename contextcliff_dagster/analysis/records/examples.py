"""What an example is: the category of its question, its evidence, and its replicates averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.arrays import Bools, Ints
    from contextcliff_dagster.contracts.results.questions import Category

CATEGORIES: tuple[Category, ...] = ("task", "kind", "level", "domain", "source")
"""Columns that may name a category."""
MOST_VALUES = 50
"""A column with more values names things, such as single files, rather than categories."""
EVIDENCE = ("evidence_position", "inter_evidence_tokens")
"""Position of a question's evidence in its document, and the distance of two pieces."""


def categories_of(records: pd.DataFrame) -> dict[str, pd.Categorical[Any]]:
    """Those of `CATEGORIES` with 2 to 50 values, which are in order; what is not there is ""."""
    import pandas as pd

    categories: dict[str, pd.Categorical[Any]] = {}
    for name in CATEGORIES:
        if name not in records.columns:
            continue
        try:
            codes, unique = pd.factorize(records[name], use_na_sentinel=False)
        except TypeError:  # lists and the like are no names
            continue
        if not 2 <= len(unique) <= MOST_VALUES:
            continue
        words = ["" if pd.isna(value) else _word(value) for value in unique]
        values = sorted(set(words))
        rank = np.array([values.index(word) for word in words], np.int8)
        categories[name] = pd.Categorical.from_codes(rank[codes], categories=pd.Index(values))
    return categories


def _word(value: Any) -> str:
    """2 and 2.0 are one level: a column of whole numbers with gaps is read as one of fractions."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def average_replicates(calls: pd.DataFrame, answered: Bools) -> pd.DataFrame:
    """One row per example: replicates averaged; a record without an id is one example."""
    known: list[str] = [name for name in CATEGORIES if name in calls.columns]
    known += [name for name in EVIDENCE if calls[name].notna().any()]
    rows = calls.loc[answered, [*_OF_EXAMPLE, *known]].reset_index(drop=True)
    # A row without an example's name is an example, one without a document's name a document of its
    # own; those without a name come after the named.
    example = _named(rows["example_id"], np.arange(len(rows)))
    document = rows["document"] = _named(rows["document_id"], example)
    width = int(example.max()) + 1 if len(example) else 1
    key = document * width + example
    if (np.diff(np.sort(key)) > 0).all():
        examples = rows.assign(replicates=1, score_sd=np.nan)
    else:
        same = ("document", "document_id", "example_id", *known)
        examples = rows.groupby(key, sort=False).agg(
            **{name: (name, "first") for name in same},
            **{name: (name, "min") for name in ("length_tokens", "bin_index")},
            **{name: (name, "mean") for name in ("score", "failed", "em", "f1", "contained")},
            replicates=("score", "size"),
            score_sd=("score", "std"),
        )
        key = examples.index.to_numpy(np.int64)
    order = np.lexsort((key, examples["length_tokens"].to_numpy(np.int64)))
    return examples.take(order).reset_index(drop=True)


_OF_EXAMPLE = (
    "document_id", "example_id", "length_tokens", "score", "failed", "em", "f1", "contained",
    "bin_index",
)  # fmt: skip


def _named(column: pd.Series[Any], otherwise: Ints) -> Ints:
    """Ranks of the names of ``column``; where there is none, ``otherwise`` behind all names."""
    names, codes = column.cat.categories, column.cat.codes.to_numpy(np.int64)
    return np.where((names == "")[codes], len(names) + otherwise, codes)
