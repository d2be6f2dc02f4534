"""The band holds the whole curve at once, whatever the shape of its fall."""

from __future__ import annotations

import numpy as np
import pytest

from contextcliff_dagster.analysis.curves.confidence_band import curve_limits
from contextcliff_dagster.analysis.curves.logistic_family import fit_declines
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster_tests.support.records.planted_curves import (
    Curve,
    flat,
    lengths_of,
    plant,
    ramp,
    shelf,
    step,
)
from contextcliff_dagster_tests.support.records.profiles import cliffs_of

DIP: Curve = lambda tokens: np.where((tokens > 400) & (tokens < 2_000), 0.25, 0.8)  # noqa: E731
TOKENS = np.unique(np.geomspace(45, 5_500, 40).astype(np.int64))


def drawn(curve: Curve, seed: int, per_bin: int = 20) -> Documents:
    rng = np.random.default_rng(seed)
    lengths = np.sort(lengths_of(rng, per_bin))
    scores = (rng.random(len(lengths)) < curve(lengths.astype(float))).astype(float)
    return Documents(lengths, np.ones(len(lengths)), scores, True)


def limits(documents: Documents, **how: bool) -> tuple[np.ndarray, np.ndarray]:
    fit = fit_declines(documents)
    return curve_limits(fit.cells, TOKENS, fit.dispersion, 0.95, fit.degrees, **how)


@pytest.mark.parametrize(
    "curve",
    [flat(0.55), step(800, 0.8, 0.3), ramp(800), shelf(2)],
    ids=["flat", "step", "ramp", "shelf"],
)
def test_the_whole_curve_is_inside_at_the_promised_rate(curve: Curve) -> None:
    truth = curve(TOKENS.astype(float))
    held = 0
    for seed in range(40):
        low, high = limits(drawn(curve, seed))
        assert (low <= high).all()
        held += bool(((low <= truth + 1e-9) & (truth <= high + 1e-9)).all())
    assert held >= 35  # 38 of 40 are promised; 34 or fewer of them come once in 100


def test_more_data_make_it_narrower_and_more_confidence_wider() -> None:
    narrow = [np.mean(np.diff(limits(drawn(flat(0.6), 1, n)), axis=0)) for n in (20, 80)]
    assert narrow[1] < 0.6 * narrow[0]
    fit = fit_declines(drawn(flat(0.6), 1))
    by_level = [
        np.mean(np.diff(curve_limits(fit.cells, TOKENS, 1.0, level), axis=0))
        for level in (0.5, 0.8, 0.95, 0.99)
    ]
    assert by_level == sorted(by_level)


def test_scores_that_recover_or_rise_are_held_too() -> None:
    truth = DIP(TOKENS.astype(float))
    held = 0
    for seed in range(20):
        low, high = limits(drawn(DIP, seed), recovers=True)
        held += bool(((low <= truth) & (truth <= high)).all())
    assert held >= 17
    rising = step(800, 0.3, 0.9)
    low, high = limits(drawn(rising, 1))
    truth = rising(TOKENS.astype(float))
    assert ((low <= truth) & (truth <= high)).all()


def test_the_curve_of_a_dip_dips() -> None:
    result = cliffs_of(plant(DIP, 3, per_bin=40))
    assert result.verdict == "dip"
    mean = {p.tokens: p.mean for p in result.curve}
    inside = [m for t, m in mean.items() if 700 < t < 1_500]
    outside = [m for t, m in mean.items() if t < 300 or t > 3_000]
    assert max(inside) < 0.5 < min(outside)


def test_the_drawn_curve_lies_in_its_band() -> None:
    for curve in (flat(0.9), shelf(2), ramp(500)):
        for point in cliffs_of(plant(curve, 2)).curve:
            assert 0 <= point.ci_low <= point.mean <= point.ci_high <= 1
