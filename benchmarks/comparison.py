"""Coverage of the intervals of `contextcliff compare`.

    python benchmarks/comparison.py [--runs 200] [--shifts 50] [--jobs 2]

Two models answer ten bins of 20 documents over log-uniform lengths of 40 to 5,900 tokens: the same
documents (paired: of the questions, 80% are as hard for both, the rest drawn anew), or different
ones. Scores: 0/1; graded (beta, concentration 4, ranks shared as above); four 0/1 questions per
document that share its chance (correlation .2). B has A's curve, or one that falls at half of the
length, or one lower by .2 everywhere.

"band": share of bands (nominal 95%) that hold the true difference, smoothed as the drawn one, at
all lengths at once; "unsmoothed": that hold the true difference itself; "width": the mean width.
"bins": share of the intervals of single bins, which are not adjusted, that hold its difference.
"shift": share of the intervals of the ratio of the two lengths of a 30% loss that hold the true
ratio; "bounded": of those with two ends. Shares have 95% limits (Wilson).
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

from contextcliff_dagster.analysis.comparison import RESAMPLES, loss_shift
from contextcliff_dagster.analysis.contrast import (
    Pairs,
    Side,
    difference_curve,
    difference_interval,
)
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval, resample_weights

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]
LOW, HIGH, PER_BIN, BINS = 40.0, 5_900.0, 20, 10
SHARED = 0.8
TOLERANCE = 0.3


def flat(mean: float) -> Curve:
    return lambda x: np.full(len(x), mean)


def step(place: float, high: float, low: float) -> Curve:
    return lambda x: np.where(x < place, high, low)


def ramp(place: float, high: float = 0.9, low: float = 0.1) -> Curve:
    return lambda x: low + (high - low) / (1 + (x / place) ** 2.5)


CURVES: dict[str, tuple[Curve, Curve]] = {
    "flat at .55, the same": (flat(0.55), flat(0.55)),
    "flat at .95, the same": (flat(0.95), flat(0.95)),
    "flat at .75 and .55": (flat(0.75), flat(0.55)),
    "ramp .9 to .1, the same": (ramp(1_200), ramp(1_200)),
    "ramp .9 to .1, halved": (ramp(1_600), ramp(800)),
    "step .95 to .50, the same": (step(1_200, 0.95, 0.5), step(1_200, 0.95, 0.5)),
    "step .95 to .50, halved": (step(1_600, 0.95, 0.5), step(800, 0.95, 0.5)),
    "step .55 to .25, halved": (step(1_600, 0.55, 0.25), step(800, 0.55, 0.25)),
}
UNPAIRED = ("flat at .75 and .55", "ramp .9 to .1, halved", "step .95 to .50, halved")
SCORES = ("0/1", "graded", "clustered")


def drawn_lengths(rng: np.random.Generator) -> NDArray[np.int64]:
    edges = np.linspace(np.log(LOW), np.log(HIGH), BINS + 1)
    x = rng.uniform(edges[:-1, None], edges[1:, None], (BINS, PER_BIN)).ravel()
    return np.sort(np.exp(x).astype(np.int64))


def answers(hard: Floats, mean: Floats, scores: str) -> Floats:
    """Draw summed scores per document for questions with difficulty ranks ``hard`` (D, Q)."""
    from scipy.stats import beta

    mean = np.clip(mean, 1e-3, 1 - 1e-3)[:, None]
    if scores == "graded":
        return np.asarray(beta.ppf(1 - hard, 4 * mean, 4 * (1 - mean))).sum(axis=1)
    if scores == "0/1":
        return (hard < mean).sum(axis=1) * 1.0
    # The first column is the document's own rank, the others its questions'.
    chance = np.asarray(beta.ppf(1 - hard[:, :1], 4 * mean, 4 * (1 - mean)))
    return (hard[:, 1:] < chance).sum(axis=1) * 1.0


def draw(rng: np.random.Generator, curves: tuple[Curve, Curve], scores: str, paired: bool) -> Pairs:
    questions = 4.0 if scores == "clustered" else 1.0
    columns = 5 if scores == "clustered" else 1
    lengths = drawn_lengths(rng)
    hard = rng.random((len(lengths), columns))
    sides = []
    for curve in curves:
        if not paired:
            lengths, hard = drawn_lengths(rng), rng.random((len(lengths), columns))
        own = np.where(rng.random(hard.shape) < SHARED, hard, rng.random(hard.shape))
        s = answers(own, curve(lengths.astype(float)), scores)
        n = np.full(len(lengths), questions)
        sides.append(Side(lengths, n, s, np.zeros(len(lengths), np.int64), scores == "0/1"))
    none, rows = np.zeros(0), np.zeros(0, np.int64)
    return Pairs(paired, sides[0], sides[1], [], none, none, rows, only_a=0, only_b=0)


def weights_of(pairs: Pairs, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    one = resample_weights(len(pairs.a.n), count, rng)
    return one, one if pairs.paired else resample_weights(len(pairs.b.n), count, rng)


def true_side(side: Side, curve: Curve) -> Side:
    mean = curve(side.length_tokens.astype(float))
    return Side(side.length_tokens, side.n, side.n * mean, side.bin_index, False)


def band(seed: int, name: str, scores: str, paired: bool) -> tuple[bool, bool, float, int]:
    rng = np.random.default_rng((seed, list(CURVES).index(name), SCORES.index(scores), paired))
    one, other = curves = CURVES[name]
    pairs = draw(rng, curves, scores, paired)
    weights = weights_of(pairs, RESAMPLES, rng)
    tokens, _, low, high = difference_curve(pairs.a, pairs.b, weights, 0.95)
    plain = np.ones((len(pairs.a.n), 1))
    truth = true_side(pairs.a, one), true_side(pairs.b, other)
    smoothed = difference_curve(*truth, (np.hstack([plain, plain]),) * 2, 0.95)[1]
    raw = other(tokens.astype(float)) - one(tokens.astype(float))
    holds = [bool(((low <= t + 1e-9) & (t <= high + 1e-9)).all()) for t in (smoothed, raw)]
    return holds[0], holds[1], float(np.mean(high - low)), bins_held(pairs, truth, weights)


def bins_held(pairs: Pairs, truth: tuple[Side, Side], weights: tuple[Floats, Floats]) -> int:
    """Count the bins, of ten, whose interval contains the difference of the true means."""
    held = 0
    for place in range(BINS):
        own = slice(place * PER_BIN, (place + 1) * PER_BIN)
        one, other = (np.array([side.n[own], side.s[own]]) for side in (pairs.a, pairs.b))
        low, high = difference_interval(one, other, (weights[0][own], weights[1][own]), 0.95)
        mean_a, mean_b = (side.s[own].sum() / side.n[own].sum() for side in truth)
        held += bool(low - 1e-9 <= mean_b - mean_a <= high + 1e-9)
    return held


def loss_at(curve: Curve) -> float:
    """Return the log length at which the curve has lost the tolerance of its shortest 15%."""
    x = np.linspace(np.log(LOW), np.log(HIGH), 20_001)
    mean = curve(np.exp(x))
    base = mean[: int(0.15 * len(x))].mean()
    lost = mean <= (1 - TOLERANCE) * base
    return float(x[np.argmax(lost)]) if lost.any() else np.inf


def shift(seed: int, name: str, scores: str, paired: bool) -> tuple[bool, bool]:
    rng = np.random.default_rng((seed, list(CURVES).index(name), SCORES.index(scores), paired, 7))
    one, other = curves = CURVES[name]
    pairs = draw(rng, curves, scores, paired)
    estimate = loss_shift(pairs, AnalysisSettings(), weights_of(pairs, 300, rng))
    truth = np.exp(loss_at(other) - loss_at(one))
    low, high = estimate.ci_low, estimate.ci_high
    holds = (low is None or low <= truth + 1e-9) and (high is None or truth <= high + 1e-9)
    return holds, low is not None and high is not None


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--shifts", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    classes = [*product(CURVES, SCORES, (True,)), *product(UNPAIRED, ("0/1",), (False,))]
    with ProcessPoolExecutor(given.jobs) as pool:
        print("| A and B | scores | band | unsmoothed | width | bins | shift | bounded |")
        print("|---|---|---|---|---|---|---|---|")
        for name, scores, paired in classes:
            options = {"name": name, "scores": scores, "paired": paired}
            bands = list(pool.map(partial(band, **options), range(given.runs), chunksize=20))
            cells = [share(sum(b[i] for b in bands), given.runs) for i in (0, 1)]
            cells.append(f"{np.mean([b[2] for b in bands]):.2f}")
            cells.append(share(sum(b[3] for b in bands), BINS * given.runs))
            if np.isfinite(loss_at(CURVES[name][0])):
                shifts = list(pool.map(partial(shift, **options), range(given.shifts), chunksize=5))
                cells.append(share(sum(s[0] for s in shifts), given.shifts))
                cells.append(f"{np.mean([s[1] for s in shifts]):.2f}")
            else:
                cells += ["", ""]
            label = scores if paired else f"{scores}, unpaired"
            print(f"| {name} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
