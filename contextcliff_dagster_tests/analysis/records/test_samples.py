"""Records to units: the order of a file, names and ties change nothing that they should not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.records import clean_records


def equal_lengths(per_length: int = 2_000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    lengths = np.repeat([1_000, 2_000, 4_000], per_length)
    return pd.DataFrame({"length_tokens": lengths, "score": rng.beta(4, 2, len(lengths))})


def test_rows_without_names_are_in_no_order_of_their_scores() -> None:
    """Neighbours are summed where there are many: sorted scores would not vary by chance."""
    documents = clean_records(equal_lengths(), []).documents()
    sums = documents.s.reshape(-1, 50).sum(axis=1)
    # The SD of a sum of 50 independent scores; in the order of the scores it is five times that.
    assert sums.std() == pytest.approx(np.sqrt(50) * documents.s.std(), rel=0.25)


@pytest.mark.parametrize("named", [True, False])
def test_the_order_of_the_records_does_not_matter(named: bool) -> None:
    records = equal_lengths(30)
    if named:
        records["document_id"] = [f"d{i // 3}" for i in range(len(records))]
    shuffled = records.sample(frac=1.0, random_state=1)
    one, other = clean_records(records, []), clean_records(shuffled, [])
    pd.testing.assert_frame_equal(one.calls, other.calls)
    pd.testing.assert_frame_equal(one.examples, other.examples)
    assert (one.documents().s == other.documents().s).all()


def test_names_are_in_order_of_their_letters_whatever_stands_beside_them() -> None:
    records = pd.DataFrame(
        {
            "length_tokens": [10, 10, 10, 10, 10],
            "score": [0.1, 0.2, 0.3, 0.4, 0.5],
            "document_id": ["b", None, "a", "b", "c"],
            "example_id": ["2", "9", "1", "1", None],
            "replicate": [0, 0, 0, 0, 0],
        }
    )
    sample = clean_records(records, [])
    assert list(sample.examples["document_id"]) == ["a", "b", "b", "c", ""]
    assert list(sample.examples["score"]) == [0.3, 0.4, 0.1, 0.5, 0.2]
    assert list(sample.documents().n) == [1, 2, 1, 1]


def test_replicates_are_averaged_within_their_document() -> None:
    records = pd.DataFrame(
        {
            "length_tokens": [10, 10, 20, 20],
            "score": [1.0, 0.0, 1.0, 1.0],
            "document_id": ["a", "a", "b", "b"],
            "example_id": ["x", "x", "x", "x"],
            "replicate": [0, 1, 0, 1],
        }
    )
    examples = clean_records(records, []).examples
    assert list(examples["score"]) == [0.5, 1.0]
    assert list(examples["replicates"]) == [2, 2]
    assert list(examples["score_sd"]) == [pytest.approx(np.sqrt(0.5)), 0.0]
