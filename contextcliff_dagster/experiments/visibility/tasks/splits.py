"""Rows divided into training, validation and test, by a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import DataError

HELD_SHARE = 0.2
"""Share of the rows in validation, and again in test."""


@dataclass(frozen=True, slots=True)
class Split:
    """Row numbers of each part; every row is in one of them."""

    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    test: NDArray[np.intp]


def split_rows(rows: int, seed: int, classes: NDArray[np.generic] | None = None) -> Split:
    """Return rows 0 to ``rows`` - 1 divided .6, .2, .2; the same seed gives the same split.

    With ``classes``, one of each row, each part has every class in about its share.

    Raises:
        DataError: there are too few rows, or too few of a class.
        ValueError: the seed is negative or above 2**32 - 1.
    """
    from sklearn.model_selection import train_test_split

    held = round(rows * HELD_SHARE)
    labels = None if classes is None else np.asarray(classes)
    fewest = rows if labels is None else int(np.unique(labels, return_counts=True)[1].min())
    kinds = 1 if labels is None else len(np.unique(labels))
    if held < max(1, kinds) or fewest < 3:
        raise DataError(
            f"{rows} rows of {kinds} classes, the smallest of {fewest}, cannot be divided into "
            f"training, validation and test; give {5 * kinds} or more, and 3 of each class."
        )
    order = np.arange(rows)
    rest, test = train_test_split(order, test_size=held, random_state=seed, stratify=labels)
    remaining = None if labels is None else labels[rest]
    train, validation = train_test_split(
        rest, test_size=held, random_state=seed, stratify=remaining
    )
    return Split(train, validation, test)
