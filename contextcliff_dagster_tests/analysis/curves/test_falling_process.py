"""The posterior against draws from its own prior, and laws that every reading of it obeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from contextcliff_dagster.analysis.cliff import certified_cap
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.falling_curve import (
    LEVELS,
    REGIMES,
    FallingCurve,
    draw_curves,
    falling_posterior,
    fit_falling_curve,
    part_reached,
)
from contextcliff_dagster.contracts.arrays import Floats


def cap_tokens(
    curve: FallingCurve, tolerance: float, confidence: float, before: int | None = None
) -> int | None:
    return certified_cap(curve, tolerance, confidence, before).tokens


TOLERANCES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def sample(scores: Floats, questions: int = 1, seed: int = 0) -> Documents:
    """Documents of log-normal lengths with these mean scores, shortest first."""
    rng = np.random.default_rng((seed, 4))
    lengths = np.sort(np.exp(rng.normal(9.0, 1.0, len(scores))).astype(np.int64)) + 1
    n = np.full(len(scores), float(questions))
    binary = bool(np.isin(scores, (0.0, 1.0)).all())
    return Documents(lengths, n, n * scores, binary)


def drawn(mean: Floats, seed: int) -> Documents:
    rng = np.random.default_rng(seed)
    return sample((rng.random(len(mean)) < mean).astype(np.float64), seed=seed)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_a_million_answers_alike_give_a_curve(right: float) -> None:
    curve = fit_falling_curve(sample(np.full(30, right), questions=1_000_000), 0.15)
    assert curve.baseline_mean == pytest.approx(right, abs=2e-3)


def step(at: float, before: float, after: float, count: int = 200) -> Floats:
    return np.where(np.arange(count) < at * count, before, after)


def rates(jumps: float, starts: float, slides: float, stops: float) -> Floats:
    """States: a level while still, then the same levels while sliding."""
    k = len(LEVELS)
    q = np.zeros((2 * k, 2 * k))
    width = np.abs(np.gradient(LEVELS))
    for i in range(k - 1):
        for j in range(i + 1, k):
            q[i, j] = jumps * width[j] / width[i + 1 :].sum()
        q[i, k + i] = starts
        q[k + i, k + i + 1] = slides * 0.04 / (LEVELS[i] - LEVELS[i + 1])
        q[k + i, i] = stops
    return q - np.diag(q.sum(axis=1))


@pytest.mark.parametrize("right", [(9, 8, 9, 5, 4, 1), (10, 10, 10, 10, 10, 9), (6, 3, 6, 2, 5, 0)])
def test_it_is_the_prior_weighed_by_the_likelihood(right: tuple[int, ...]) -> None:
    n, s, baseline = np.full(6, 10.0), np.array(right, dtype=float), 2
    count, rng = 200_000, np.random.default_rng(0)
    weight, kept, means = [], [], []
    for *regime, prior in REGIMES:
        move = expm(rates(*regime) / 6.0).clip(0.0).cumsum(axis=1)
        m, state = rng.random(count), np.zeros(count, np.int64)
        path = np.empty((count, 6), np.float32)
        for cell in range(6):
            if cell:
                parts = np.split(state, 20)  # the whole would take two hundred megabytes
                state = np.concatenate(
                    [(move[part] < rng.random((len(part), 1))).sum(axis=1) for part in parts]
                )
            path[:, cell] = m * LEVELS[np.minimum(state, 2 * len(LEVELS) - 1) % len(LEVELS)]
        mu = path.clip(1e-3, 1.0 - 1e-3)
        weight.append(prior * np.exp((s * np.log(mu) + (n - s) * np.log1p(-mu)).sum(axis=1)))
        kept.append(path / path[:, :baseline].mean(axis=1, keepdims=True))
        means.append(path)
    w, shares = np.concatenate(weight), np.concatenate(kept)
    w /= w.sum()
    posterior = falling_posterior(n, s, np.ones(6), baseline)
    for cell in range(baseline, 6):
        for share in (0.5, 0.7, 0.85):
            expected = w @ (shares[:, cell] <= share)
            at_most = np.cumsum(posterior.kept[cell - baseline, ::-1])
            assert np.interp(share, LEVELS[::-1], at_most) == pytest.approx(expected, abs=0.05)
    expected_means = w @ np.concatenate(means)
    assert posterior.chance @ posterior.mean == pytest.approx(expected_means, abs=0.02)


SCORES = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=30, max_size=80).map(np.array)


@given(SCORES, st.sampled_from([1, 3]))
def test_chances_grow_with_length_and_shrink_with_the_share(scores: Floats, questions: int) -> None:
    curve = fit_falling_curve(sample(scores, questions), 0.15)
    chances = np.array([curve.posterior.chance_lost(share) for share in TOLERANCES])
    assert ((chances >= -1e-9) & (chances <= 1.0 + 1e-9)).all()
    assert (np.diff(chances, axis=1) >= -1e-6).all()
    assert (np.diff(chances, axis=0) <= 1e-9).all()
    assert curve.posterior.chance.sum(axis=1) == pytest.approx(1.0)
    assert curve.posterior.regimes.sum() == pytest.approx(1.0)
    assert (np.diff(curve.mean()) <= 1e-3).all()


@given(SCORES)
def test_caps_are_nested_and_within_what_was_measured(scores: Floats) -> None:
    curve = fit_falling_curve(sample(scores), 0.15)
    caps = [cap_tokens(curve, tolerance, 0.95) or 0 for tolerance in TOLERANCES]
    assert caps == sorted(caps)
    sure = [cap_tokens(curve, 0.3, confidence) or 0 for confidence in (0.99, 0.95, 0.8)]
    assert sure == sorted(sure)
    baseline_end = int(curve.cells.high[curve.cells.baseline_cells - 1])
    assert all(cap == 0 or baseline_end < cap <= curve.cells.high[-1] for cap in caps)
    assert (cap_tokens(curve, 0.3, 0.95, before=baseline_end + 1)) is None


@given(SCORES)
def test_readings_never_contradict_each_other(scores: Floats) -> None:
    curve = fit_falling_curve(sample(scores), 0.15)
    drop, midpoint = curve.drop(0.95), curve.drop_place(0.95)
    assert drop.low <= drop.value <= drop.high
    assert midpoint.low <= midpoint.value <= midpoint.high <= curve.cells.high[-1]
    lost = curve.lost_at(0.3, 0.95)
    assert lost.low <= lost.value <= lost.high
    assert (cap_tokens(curve, 0.3, 0.95) or 0) <= lost.value
    parts = [part_reached(curve.posterior, part, 0.1) for part in (0.25, 0.5, 0.75)]
    assert (np.diff(parts, axis=1) >= -1e-9).all()
    assert (np.diff(parts, axis=0) <= 1e-9).all()
    assert (curve.mean(0.025) <= curve.mean(0.5)).all()
    assert (curve.mean(0.5) <= curve.mean(0.975)).all()


def test_drawn_curves_have_the_posterior_s_chances() -> None:
    curve = fit_falling_curve(drawn(step(0.6, 0.8, 0.4, 60), 2), 0.15)
    baseline, kept = draw_curves(curve.posterior, 4_000, np.random.default_rng(0))
    assert (np.diff(kept, axis=1) <= 0).all()
    shares = (kept[:, :, None] == LEVELS).mean(axis=0)
    assert shares == pytest.approx(curve.posterior.kept, abs=0.05)
    beyond = curve.mean()[-kept.shape[1] :]
    assert (baseline[:, None] * kept).mean(axis=0) == pytest.approx(beyond, abs=0.02)
    # The joint of two cells: half of the drop has happened where the curves have it.
    deep = kept[:, -1] <= 0.9
    half = 1.0 - kept[deep] >= 0.5 * (1.0 - kept[deep, -1:])
    reached = part_reached(curve.posterior, 0.5, 0.1)
    assert half.mean(axis=0) == pytest.approx(reached, abs=0.06)


def test_only_the_order_of_lengths_counts() -> None:
    documents = drawn(step(0.5, 0.9, 0.4), 3)
    scaled = replace(documents, length_tokens=documents.length_tokens * 10)
    cap, tenfold = (cap_tokens(fit_falling_curve(d, 0.15), 0.3, 0.95) for d in (documents, scaled))
    assert cap is not None
    assert tenfold == 10 * cap


@pytest.mark.parametrize("seed", range(4))
def test_a_flat_model_is_certified_to_its_end_and_a_step_up_to_it(seed: int) -> None:
    flat = drawn(np.full(200, 0.95), seed)
    cap = cap_tokens(fit_falling_curve(flat, 0.15), 0.3, 0.95)
    assert cap is not None
    assert cap >= np.quantile(flat.length_tokens, 0.92)
    falls = drawn(step(0.5, 0.9, 0.3), seed)
    curve = fit_falling_curve(falls, 0.15)
    place = float(falls.length_tokens[100])
    cap = cap_tokens(curve, 0.3, 0.95)
    assert cap is not None
    assert np.quantile(falls.length_tokens, 0.25) <= cap <= place
    midpoint = curve.drop_place(0.95)
    assert midpoint.low <= place <= midpoint.high


def test_five_lengths_and_a_shelf_are_no_safe_length() -> None:
    rng = np.random.default_rng(1)
    mean = np.repeat([0.9, 0.54, 0.54, 0.3, 0.1], 40)
    scores = (rng.random(200) < mean).astype(np.float64)
    lengths = np.repeat(1_000 * 2 ** np.arange(5), 40).astype(np.int64)
    curve = fit_falling_curve(Documents(lengths, np.ones(200), scores, True), 0.15)
    assert cap_tokens(curve, 0.3, 0.95) is None
    assert curve.lost_at(0.3, 0.95).value == pytest.approx(1_414, abs=1)


@pytest.mark.parametrize("level", [0.0, 1.0])
@pytest.mark.parametrize("count", [30, 20_000])
def test_equal_scores_and_many_documents_are_finite(level: float, count: int) -> None:
    curve = fit_falling_curve(sample(np.full(count, level)), 0.15)
    assert np.isfinite(curve.posterior.kept).all()
    assert np.isfinite(curve.posterior.chance).all()
    if level == 1.0:
        assert (cap_tokens(curve, 0.3, 0.95) or 0) >= curve.cells.high[-7]


def test_scatter_that_changes_with_length_is_known_by_length() -> None:
    rng = np.random.default_rng(0)
    calm = np.clip(0.7 + rng.normal(0, 0.05, 100), 0, 1)
    wild = (rng.random(100) < 0.7).astype(np.float64)
    curve: FallingCurve = fit_falling_curve(sample(np.concatenate([calm, wild])), 0.15)
    assert curve.dispersion[:60].max() < 0.5 * curve.dispersion[140:].min()
    assert (cap_tokens(curve, 0.3, 0.95) or 0) >= curve.cells.high[160]
    alike = sample(wild, questions=4)
    alike.n[0], alike.s[0] = 1, wild[0]
    assert fit_falling_curve(alike, 0.15).dispersion.min() > 2
