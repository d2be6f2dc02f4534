"""The monotone likelihood ratio behind the cap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contextcliff_dagster.analysis.cap import certified_cap
from contextcliff_dagster.analysis.decline import merge_cells
from contextcliff_dagster.analysis.monotone import isotonic_fits, loss_deviance
from contextcliff_dagster.analysis.units import Documents

Floats = NDArray[np.float64]
counts = st.lists(
    st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=2,
    max_size=15,
)


def pooled(n: Floats, s: Floats) -> Floats:
    """Non-increasing fit by pooling adjacent violators, the textbook way."""
    blocks: list[list[float]] = []
    for trials, hits in zip(n, s, strict=True):
        blocks.append([trials, hits, 1])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][0] <= blocks[-1][1] * blocks[-2][0]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return np.concatenate([np.full(int(k), hits / trials) for trials, hits, k in blocks])


@settings(deadline=None)
@given(counts)
def test_all_fits_at_once_equal_pooling_adjacent_violators(pairs: list[tuple[int, int]]) -> None:
    n, s = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    free, before, after = isotonic_fits(n, s)
    np.testing.assert_allclose(free, pooled(n, s))
    for t in range(1, len(n)):
        np.testing.assert_allclose(before[:t, t], pooled(n[:t], s[:t]))
        np.testing.assert_allclose(after[t:, t], pooled(n[t:], s[t:]))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
def test_a_later_loss_is_never_easier_to_refute_nor_a_smaller_one_harder(
    seed: int, level: float
) -> None:
    rng = np.random.default_rng(seed)
    scores = (rng.random(80) < level).astype(float)
    cells = merge_cells(Documents(np.arange(50, 130), np.ones(80), scores, True))
    deviances = [loss_deviance(cells, tolerance, 1.0) for tolerance in (0.1, 0.3, 0.5)]
    for deviance in deviances:
        assert np.all(np.diff(deviance) <= 1e-6)
        assert np.all(deviance >= 0)
    assert np.all(deviances[0] <= deviances[1] + 1e-6)
    assert np.all(deviances[1] <= deviances[2] + 1e-6)


def test_an_estimated_dispersion_certifies_no_more_than_a_known_one() -> None:
    rng = np.random.default_rng(3)
    lengths = np.unique(np.geomspace(50, 5_000, 60).astype(np.int64))
    scores = (rng.random(len(lengths)) < 0.9).astype(float)
    cells = merge_cells(Documents(lengths, np.ones(len(lengths)), scores, True))
    caps = [
        certified_cap(cells, 1.0, 0.3, 0.95, degrees=degrees).tokens or 0
        for degrees in (2, 5, 25, 1_000_000, None)
    ]
    assert caps == sorted(caps)
    assert caps[0] < caps[-1] == caps[-2]
