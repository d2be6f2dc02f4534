"""The plateau of a shape is where the likelihood of the scores is highest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from contextcliff_dagster.analysis.curves.profiled_plateau import MU_FLOOR, profiled, two_levels

DEPTHS = np.array([0.0, 0.2, 0.55, 0.98])


def _likelihood(m: float, retained: np.ndarray, n: np.ndarray, s: np.ndarray) -> float:
    mu = np.maximum(m * retained, MU_FLOOR)
    return float(s @ np.log(mu) + (n - s) @ np.log1p(-mu))


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.02, 0.5, 0.9, 0.999, 1.0]))
@example(3, 1.0)
@example(5, 0.0)
def test_newton_finds_the_likeliest_plateau_of_every_shape(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(2, 40))
    n = rng.integers(1, 6, cells).astype(float)
    s = rng.binomial(n.astype(int), level * np.where(rng.random(cells) < 0.3, 0.5, 1)).astype(float)
    # Shapes of very different width, flat before and after a stretch of theirs.
    first = rng.integers(1, cells, 30)
    last = np.minimum(first + rng.integers(0, cells, 30), cells)
    at = np.arange(cells)[None, :]
    inside = (at - first[:, None] + 0.5) / np.maximum(last - first, 1)[:, None]
    share = np.where(
        at < first[:, None], 0.0, np.where(at >= last[:, None], 1.0, inside.clip(0, 1))
    )
    plateau, q = profiled(share, DEPTHS, n, s, (first, last))
    everywhere = profiled(share, DEPTHS, n, s)
    assert q == pytest.approx(everywhere[1], abs=1e-4)
    assert plateau == pytest.approx(everywhere[0], abs=1e-3)
    for i in range(0, 30, 7):
        for j, depth in enumerate(DEPTHS):
            retained = 1.0 - depth * share[i]
            assert q[i, j] == pytest.approx(_likelihood(plateau[i, j], retained, n, s), abs=1e-9)
            best = minimize_scalar(
                lambda m, h=retained: -_likelihood(m, h, n, s),
                bounds=(MU_FLOOR, 1.0 - MU_FLOOR),
                method="bounded",
                options={"xatol": 1e-9},
            )
            # Newton's steps do not mind the floor of tiny means, the search next to them does.
            if (best.x * retained).min() > 2 * MU_FLOOR:
                assert q[i, j] >= -best.fun - 1e-5


def test_a_shape_that_never_was_at_its_plateau_may_have_one_beyond_one() -> None:
    n = np.full(4, 100.0)
    s = np.array([60.0, 55.0, 52.0, 50.0])
    share = np.array([[0.8, 0.9, 0.95, 1.0]])
    plateau, _ = profiled(share, np.array([0.5]), n, s)
    assert plateau[0, 0] == pytest.approx(1.0, abs=0.02)
    assert plateau[0, 0] * 0.6 < 1.0


def test_two_levels_in_closed_form_are_what_newton_finds() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(1, 6, 30).astype(float)
    s = rng.binomial(n.astype(int), 0.6).astype(float)
    first = np.arange(1, 30)
    share = (np.arange(30)[None, :] >= first[:, None]).astype(float)
    closed = two_levels(share @ n, share @ s, float(n.sum()), float(s.sum()), DEPTHS)
    plateau, q = profiled(share, DEPTHS, n, s, (first, first))
    assert plateau == pytest.approx(closed[0], abs=1e-5)
    assert q == pytest.approx(closed[1], abs=1e-6)
