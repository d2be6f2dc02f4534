"""The monotone likelihood ratio behind the cap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contextcliff_dagster.analysis.cliff.verdict import find_verdict
from contextcliff_dagster.analysis.curves.cells import merge_cells
from contextcliff_dagster.analysis.curves.isotonic import (
    FallingFits,
    isotonic_fits,
    loss_deviance,
    possible_crossings,
)
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster.analysis.records.settings import AnalysisSettings

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


@given(counts)
def test_all_fits_at_once_equal_pooling_adjacent_violators(pairs: list[tuple[int, int]]) -> None:
    n, s = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    free, before, after = isotonic_fits(n, s)
    np.testing.assert_allclose(free, pooled(n, s))
    for t in range(1, len(n)):
        np.testing.assert_allclose(before[:t, t], pooled(n[:t], s[:t]))
        np.testing.assert_allclose(after[t:, t], pooled(n[t:], s[t:]))


@given(counts, st.floats(0.02, 0.98), st.floats(0.0, 1.0))
def test_the_likelihood_of_clipped_fits_is_that_of_the_curve_written_out(
    pairs: list[tuple[int, int]], level: float, loss: float
) -> None:
    n, s = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))

    def q(curve: Floats) -> float:
        mu = curve.clip(1e-4, 1 - 1e-4)
        return float(s @ np.log(mu) + (n - s) @ np.log1p(-mu))

    held = (1 - loss) * level
    free, before, after = isotonic_fits(n, s)
    fits = FallingFits(n, s, 1.0, 0.0)
    fits._levels, fits._base = np.array([level]), np.zeros(1)  # one level, that weighs nothing
    best, passing = fits.likelihoods(loss)
    assert np.isclose(best, q(np.minimum(free, level)))
    for t in range(len(n)):
        early, late = before[:t, t].clip(held, level), np.minimum(after[t:, t], held)
        assert np.isclose(passing[t], q(np.concatenate([early, late])))
    assert np.isclose(passing[-1], q(free.clip(held, level)))


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


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9))
def test_the_places_of_a_loss_shrink_with_the_limit_and_move_out_with_the_loss(
    seed: int, loss: float
) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.unique(np.geomspace(50, 5_000, 90).astype(np.int64))
    scores = (rng.random(len(lengths)) < np.interp(lengths, (200, 2_000), (0.95, 0.05))).astype(
        float
    )
    cells = merge_cells(Documents(lengths, np.ones(len(lengths)), scores, True))
    earlier, later = 50, 5_000
    for limit in (20.0, 5.4, 1.0, 0.0):
        places_found = possible_crossings(cells, loss, 1.0, limit)
        assert places_found is not None
        first, last = places_found
        assert earlier <= first < last <= later
        earlier, later = first, last
    crossings = [possible_crossings(cells, share, 1.0, 5.4) for share in (0.1, 0.3, 0.6, 0.9)]
    places = [place for place in crossings if place is not None]
    assert len(places) == 4
    assert places == sorted(places)
    assert [last for _, last in places] == sorted(last for _, last in places)


def test_a_sure_step_has_its_loss_at_the_step_and_a_flat_curve_nowhere() -> None:
    lengths = np.arange(100, 2_100, 10)
    for scores, place in (
        ((lengths < 1_000).astype(float), (990, 1_000)),
        (np.ones(len(lengths)), (2_090, 2_090)),
    ):
        cells = merge_cells(Documents(lengths, np.full(len(lengths), 50.0), 50 * scores, True))
        assert possible_crossings(cells, 0.5, 1.0, 5.4) == place


def test_a_better_explanation_of_another_kind_leaves_no_place() -> None:
    lengths = np.arange(100, 2_100, 10)
    scores = 50.0 * (lengths < 1_000)
    cells = merge_cells(Documents(lengths, np.full(len(lengths), 50.0), scores, True))
    assert possible_crossings(cells, 0.5, 1.0, 5.4, at_least=1e6) is None
    assert np.all(loss_deviance(cells, 0.5, 1.0, at_least=1e6) > 1e6)


def test_the_interval_of_the_half_drop_holds_on_a_curve_with_a_shelf() -> None:
    """Flat, a sudden fall to a third, a shelf there: no logistic follows, so the family errs.

    The half of the drop is reached at 345 tokens. At 95%, 3 misses in 20 or more would come by
    chance in one run of this test in thirteen if the interval only just held; the seed is fixed.
    """
    lengths = np.unique(np.geomspace(40, 5_900, 200).astype(np.int64))
    truth = np.interp(
        np.log(lengths), np.log([280, 345, 420, 560, 800]), (0.99, 0.495, 0.30, 0.26, 0.04)
    )
    covered = 0
    for seed in range(20):
        scores = (np.random.default_rng(seed).random(len(lengths)) < truth).astype(float)
        documents = Documents(lengths, np.ones(len(lengths)), scores, True)
        found = find_verdict(documents, AnalysisSettings(permutations=199, resamples=100), 0.99)
        assert found.cliff is not None
        covered += found.cliff.location.low <= 345 <= found.cliff.location.high
    assert covered >= 18
