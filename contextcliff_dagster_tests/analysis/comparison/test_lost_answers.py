"""Windows count where losses outnumber gains, on several documents, in a model that is still."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from contextcliff_dagster.analysis.regression import Changes, at_the_loss, count_windows, window_at


def changes(a: list[int], b: list[int], per_document: int = 1) -> Changes:
    before, now = np.array(a, dtype=bool), np.array(b, dtype=bool)
    place = np.arange(len(a))
    return Changes(before, before & ~now, ~before & now, place // per_document, 100 * (1 + place))


def whole(found: Changes) -> tuple[float, bool]:
    counted = count_windows(found, np.array([0]), np.array([len(found.lost)]), 0.05)
    return float(counted.tail[0]), bool(counted.barred[0])


@given(st.integers(1, 60), st.data())
def test_the_tail_is_that_of_as_many_flips(size: int, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, size))
    tail, _ = whole(changes([1] * size, [0] * lost + [1] * (size - lost)))
    assert tail == pytest.approx(sum(binom.pmf(k, size, 0.05) for k in range(lost, size + 1)))


def test_losses_with_as_many_gains_are_noise() -> None:
    assert whole(changes([1] * 10 + [0] * 10, [0] * 8 + [1] * 2 + [0] * 10)) == (
        pytest.approx(binom.sf(7, 20, 0.05)),
        False,
    )
    assert whole(changes([1] * 10 + [0] * 10, [0] * 8 + [1] * 10 + [0] * 2))[1]


def test_losses_on_two_documents_are_an_accident() -> None:
    lost = [1] * 12, [0] * 8 + [1] * 4
    assert whole(changes(*lost, per_document=4))[1]
    assert not whole(changes(*lost, per_document=2))[1]


def test_gains_beside_the_window_bar_it() -> None:
    a = [1] * 10 + [0] * 10
    still, restless = [0] * 8 + [1] * 2 + [0] * 10, [0] * 8 + [1] * 2 + [1] * 6 + [0] * 4
    first = np.array([0]), np.array([10])
    assert not count_windows(changes(a, still), *first, 0.05).barred[0]
    assert count_windows(changes(a, restless), *first, 0.05).barred[0]


def test_a_moved_cliff_is_looked_for_below_the_old_one() -> None:
    found = changes([1] * 20, [1] * 10 + [0] * 10)
    p, start, end = at_the_loss(found, 2_000, 0.05)
    assert (start, end) == (9, 20)
    assert p == pytest.approx(binom.sf(9, 11, 0.05))
    seen = window_at(found, start, end)
    assert (seen.from_tokens, seen.to_tokens, seen.lost, seen.right) == (1_000, 2_000, 10, 11)
    assert at_the_loss(found, 50, 0.05)[0] == 1.0
