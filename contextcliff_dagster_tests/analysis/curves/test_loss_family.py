"""Steps, ramps and dips, and the cap that they leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from contextcliff_dagster.analysis.cliff.cap import certified_cap
from contextcliff_dagster.analysis.curves.loss_family import Losses, Members, depths_for, fit_losses
from contextcliff_dagster.analysis.design.simulation import Design, simulate
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.records.samples import Documents

Floats = NDArray[np.float64]
LENGTHS = np.unique(np.geomspace(50, 5_000, 120).astype(np.int64))


def scored(mean: Floats, seed: int) -> Documents:
    scores = (np.random.default_rng(seed).random(len(mean)) < mean).astype(float)
    return Documents(LENGTHS, np.ones(len(LENGTHS)), scores, True)


def sure(mean: Floats) -> Documents:
    """A hundred questions a document, scores exactly as the mean says."""
    return Documents(LENGTHS, np.full(len(LENGTHS), 100.0), 100.0 * mean, True)


def curve_of(losses: Losses, kind: Members, place: int, depth: float) -> Floats:
    """h of one member at every cell, by the formula of the module's docstring."""
    x, onset, end = losses.cells.x, kind.onset[place], kind.end[place]
    lost = np.clip((x - onset) / max(end - onset, 1e-9), 0.0, 1.0)
    if kind is losses.steps:
        lost = (x >= onset).astype(float)
    if kind is losses.dips:
        lost = ((x >= onset) & (x < end)).astype(float)
    return np.asarray(1 - depth * lost)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 0.9))
def test_every_member_has_the_likelihood_of_its_best_plateau(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    losses = fit_losses(scored(np.full(len(LENGTHS), level), seed), 0.3)
    n, s = losses.cells.n, losses.cells.s
    for kind in losses.kinds:
        place = int(rng.integers(len(kind.onset)))
        column = int(rng.integers(len(kind.depths)))
        h = curve_of(losses, kind, place, kind.depths[column])

        def cost(plateau: float, h: Floats = h) -> float:
            mu = np.clip(plateau * h, 1e-3, 1 - 1e-3)
            return -float(s @ np.log(mu) + (n - s) @ np.log1p(-mu))

        best = minimize_scalar(cost, bounds=(1e-3, 1 - 1e-3), method="bounded")
        assert kind.q[place, column] == pytest.approx(-best.fun, abs=1e-2)


@pytest.mark.parametrize("tolerance", [0.05, 0.1, 0.3, 0.5])
def test_depths_lie_around_the_tolerance_and_reach_nearly_all(tolerance: float) -> None:
    depths = depths_for(tolerance)
    assert np.all(np.diff(depths) > 0)
    assert np.isclose(depths, tolerance).any()
    assert (depths < tolerance - 1e-9).sum() == 2
    assert depths[-1] == pytest.approx(0.98)


def test_the_cap_of_sure_scores_ends_right_before_the_loss() -> None:
    step = sure(np.where(LENGTHS < 1_000, 0.8, 0.4))
    dip = sure(np.where((LENGTHS >= 1_000) & (LENGTHS < 2_000), 0.4, 0.8))
    flat = sure(np.full(len(LENGTHS), 0.8))
    small = sure(np.where(LENGTHS < 1_000, 0.8, 0.7))
    last = int(LENGTHS[LENGTHS < 1_000][-1])
    knot = int(LENGTHS[LENGTHS < 900][-1])
    assert certified_cap(fit_losses(step, 0.3), 0.3, 0.95).tokens == last
    assert knot <= (certified_cap(fit_losses(dip, 0.3), 0.3, 0.95).tokens or 0) <= last
    for documents in (flat, small):
        cap = certified_cap(fit_losses(documents, 0.3), 0.3, 0.95)
        assert cap.tokens == int(LENGTHS[-1])
        assert "nothing longer" in cap.reason


@given(st.integers(0, 2**32 - 1), st.floats(0.3, 0.95))
def test_more_confidence_and_an_estimated_dispersion_never_lengthen_a_cap(
    seed: int, level: float
) -> None:
    losses = fit_losses(scored(np.where(LENGTHS < 900, level, level / 2), seed), 0.3)
    caps = [certified_cap(losses, 0.3, sure).tokens or 0 for sure in (0.5, 0.8, 0.95, 0.99)]
    assert caps == sorted(caps, reverse=True)
    caps = [
        certified_cap(replace(losses, degrees=degrees), 0.3, 0.95).tokens or 0
        for degrees in (2, 5, 25, 1_000_000, None)
    ]
    assert caps == sorted(caps)


def test_half_of_a_step_is_certified_and_what_lies_beyond_it_is_not() -> None:
    """In 40 samples of 200 graded scores, at most 5 caps beyond the step: 2 are promised."""
    beyond, shares = 0, []
    for seed in range(40):
        curve = Curve("step", 0.6, 0.55, place=0.5)
        drawn = simulate(Design(), curve, np.random.default_rng(seed))
        cap = certified_cap(fit_losses(drawn.documents, 0.3), 0.3, 0.95).tokens
        share = 0.0 if cap is None else drawn.share_up_to(cap)
        beyond += share > 0.5
        shares.append(share)
    assert beyond <= 5
    assert 0.35 <= np.median(shares) <= 0.5
