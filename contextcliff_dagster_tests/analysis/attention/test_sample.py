"""What a sample of attention takes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from contextcliff_dagster.analysis.attention import AttentionSample
from contextcliff_dagster.contracts import ContextCliffError


def _sample(**changed: object) -> AttentionSample:
    shares = np.full((2, 3, 4), 0.25)
    given = {
        "example_ids": ("a", "b"),
        "tokens": np.array([100, 200]),
        "entropy": shares,
        "sinks": shares,
        "evidence": np.full((2, 3, 4), np.nan),
        "trained_tokens": None,
    }
    return AttentionSample(**(given | changed))  # type: ignore[arg-type]


def test_evidence_may_be_unknown() -> None:
    assert np.isnan(_sample().evidence).all()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"example_ids": ("a", "a")}, "an example twice"),
        ({"entropy": np.full((2, 3, 4), 1.1)}, "'entropy' outside 0..1"),
        ({"sinks": np.full((2, 3, 5), 0.1)}, "shapes"),
        ({"tokens": np.array([100])}, "shapes"),
    ],
)
def test_what_does_not_belong_together_is_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(ContextCliffError, match=words):
        _sample(**changed)
