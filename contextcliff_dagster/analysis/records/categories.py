"""What records say of the category that a question is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts.results.questions import Category

CATEGORIES: tuple[Category, ...] = ("task", "kind", "level", "domain", "source")
"""Columns that may name a category."""
MOST_VALUES = 50
"""A column with more values names things, such as single files, rather than categories."""


def categories_of(records: pd.DataFrame) -> dict[str, pd.Categorical[Any]]:
    """Those of `CATEGORIES` with 2 to 50 values, which are in order; what is not there is ""."""
    import pandas as pd

    found: dict[str, pd.Categorical[Any]] = {}
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
        found[name] = pd.Categorical.from_codes(rank[codes], categories=pd.Index(values))
    return found


def _word(value: Any) -> str:
    """2 and 2.0 are one level: a column of whole numbers with gaps is read as one of fractions."""
    return f"{value:g}" if isinstance(value, float) else str(value)
