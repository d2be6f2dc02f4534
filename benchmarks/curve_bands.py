"""Coverage of the curve's band in `cliffs.json`, and error rates of the scatter test.

    python benchmarks/curve_bands.py [--runs 300] [--jobs 2]

Ten bins of 20 documents over log-uniform lengths of 40 to 5,900 tokens. Curves: flat, a step, a
logistic ramp, a shelf that no logistic follows, a mild line, a dip. Scores: 0/1; graded (beta,
concentration 4); four 0/1 questions per document that share its chance (correlation .2).

"holds": share of 60 lengths at which the band (nominally 95% at each) holds the true mean; "all":
share of bands that do at every length; "width": mean width. "scatter": share of graded data sets in
which the test of scatter beyond the mean has p <= .05, where there is none and where the middle
third of the lengths scatters with concentration .8 instead of 4; refused ones count as none. Shares
with 95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.robustness import variance_signal
from contextcliff_dagster.analysis.statistics.falling_curve import (
    BASELINE_SHARE,
    curve_points,
    fit_falling_curve,
    fitted_mean,
)
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

Floats = NDArray[np.float64]
LOW, HIGH, PER_BIN, BINS = 40.0, 5_900.0, 20, 10
POINTS = 60


def shelf(x: Floats) -> Floats:
    at = np.log([40, 546, 798, 1_038, 2_304, 5_900])
    return np.interp(np.log(x), at, [0.9, 0.88, 0.6, 0.55, 0.15, 0.1])


CURVES: dict[str, Callable[[Floats], Floats]] = {
    "flat at .55": lambda x: np.full(len(x), 0.55),
    "flat at .95": lambda x: np.full(len(x), 0.95),
    "step .55 to .30": lambda x: np.where(x < 800, 0.55, 0.30),
    "step .95 to .50": lambda x: np.where(x < 800, 0.95, 0.50),
    "ramp .9 to .1": lambda x: 0.1 + 0.8 / (1 + np.exp((np.log(x) - np.log(800)) / 0.4)),
    "shelf": shelf,
    "line .8 to .7": lambda x: 0.8 - 0.1 * np.log(x / LOW) / np.log(HIGH / LOW),
    "dip .7 to .35": lambda x: np.where((x > 500) & (x < 2_000), 0.35, 0.7),
}
SCORES = ("0/1", "graded", "clustered")


def draw(rng: np.random.Generator, curve: str, scores: str, uneven: bool = False) -> Documents:
    edges = np.linspace(np.log(LOW), np.log(HIGH), BINS + 1)
    x = rng.uniform(edges[:-1, None], edges[1:, None], (BINS, PER_BIN)).ravel()
    lengths = np.sort(np.exp(x).astype(np.int64))
    mean = np.clip(CURVES[curve](lengths.astype(float)), 1e-3, 1 - 1e-3)
    one = np.ones(len(lengths))
    if scores == "0/1":
        return Documents(lengths, one, (rng.random(len(mean)) < mean) * 1.0, True)
    if scores == "graded":
        place = np.log(lengths / LOW) / np.log(HIGH / LOW)
        wide = uneven & (place > 1 / 3) & (place < 2 / 3)
        k = np.where(wide, 0.8, 4.0)
        return Documents(lengths, one, rng.beta(k * mean, k * (1 - mean)), False)
    chance = rng.beta(4 * mean, 4 * (1 - mean))
    return Documents(lengths, 4 * one, rng.binomial(4, chance) * 1.0, True)


def band(seed: int, curve: str, scores: str) -> tuple[float, float]:
    """Return the share of lengths at which the band contains the truth, and its mean width."""
    rng = np.random.default_rng((seed, list(CURVES).index(curve), SCORES.index(scores)))
    points = curve_points(fit_falling_curve(draw(rng, curve, scores), BASELINE_SHARE), 0.95)
    truth = CURVES[curve](np.array([point.tokens for point in points], dtype=float))
    low, high = (np.array([getattr(point, of) for point in points]) for of in ("ci_low", "ci_high"))
    holds = (low <= truth + 1e-9) & (truth <= high + 1e-9)
    return float(holds.mean()), float(np.mean(high - low))


def scatters(seed: int, curve: str, uneven: bool) -> bool:
    rng = np.random.default_rng((seed, list(CURVES).index(curve), 9, uneven))
    documents = draw(rng, curve, "graded", uneven)
    lengths = documents.length_tokens
    mean = fitted_mean(fit_falling_curve(documents, BASELINE_SHARE), lengths)
    names = np.arange(len(lengths))
    signal = variance_signal(names, lengths, documents.s, mean, permutations=199, seed=0)
    return signal.p_value is not None and signal.p_value <= 0.05


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.runs)
    with ProcessPoolExecutor(given.jobs) as pool:
        print("| curve | scores | holds | all | width |\n|---|---|---|---|---|")
        for curve, scores in product(CURVES, SCORES):
            done = list(pool.map(partial(band, curve=curve, scores=scores), seeds, chunksize=20))
            width = np.mean([w for _, w in done])
            held = np.mean([h for h, _ in done])
            of_all = share(sum(h == 1.0 for h, _ in done), given.runs)
            print(f"| {curve} | {scores} | {held:.3f} | {of_all} | {width:.2f} |", flush=True)
        print("\n| curve | scatter, none | scatter, planted |\n|---|---|---|")
        for curve in CURVES:
            cells = [
                share(
                    sum(
                        pool.map(partial(scatters, curve=curve, uneven=uneven), seeds, chunksize=20)
                    ),
                    given.runs,
                )
                for uneven in (False, True)
            ]
            print(f"| {curve} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
