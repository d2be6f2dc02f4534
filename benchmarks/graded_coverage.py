"""Coverage of the drop's interval, and rate of unsafe caps, with an estimated spread.

    python benchmarks/graded_coverage.py [--runs 400] [--judged 100] [--jobs 2]

0/1 scores of one question per document have a known variance; graded scores, averages of replicates
and several questions on one document have one that must be estimated from the documents, few or
many. The truth falls from .7 to .4 (43%), as a step or over a logistic width, at the middle of the
log lengths; 3 to 20 documents a bin, 5 or 10 bins. Kinds of scores, with the dispersion of a
document's sum relative to the binomial one:

    f1        beta-distributed, concentration 4 (.20)
    narrow    beta-distributed, concentration 20 (.05)
    wide      beta-distributed, concentration 0.5 (.67): mostly 0 or 1
    replicates  three 0/1 answers averaged, the document's chance itself beta with concentration 4
    questions three f1 scores on one document that share half of their spread

Coverage: share of drop intervals (nominal 95%) that hold the truth, over all data sets and over
those of the judged that are a cliff or a decline and so print it. Unsafe: share of caps
beyond the length at which 30% is lost. Shares have 95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.cliff import baseline_of, certified_cap, find_verdict
from contextcliff_dagster.analysis.profile import AnalysisSettings
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.falling_curve import BASELINE_SHARE, fit_falling_curve
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval
from contextcliff_dagster.contracts import Verdict

Floats = NDArray[np.float64]
SETTINGS = AnalysisSettings(permutations=199, resamples=100)
KINDS = ("f1", "narrow", "wide", "replicates", "questions")
SHAPES = ("step", "ramp")
DESIGNS = ((10, 3), (5, 5), (10, 5), (5, 10), (10, 10), (10, 20))
"""Number of bins, and documents per bin."""
SHORTEST, LONGEST, MIDDLE, WIDTH = 40, 5_900, 486, 0.25
TOP, BOTTOM = 0.7, 0.4
PRINTED = (Verdict.CLIFF, Verdict.GRADUAL_DECLINE, Verdict.DECLINE)


def mean_at(shape: str, tokens: Floats) -> Floats:
    distance = np.log(tokens) - np.log(MIDDLE)
    if shape == "step":
        return np.where(distance < 0, TOP, BOTTOM)
    out: Floats = TOP - (TOP - BOTTOM) / (1.0 + np.exp(-distance / WIDTH))
    return out


def true_length(shape: str) -> float:
    tokens = np.arange(SHORTEST, LONGEST, dtype=float)
    return float(tokens[np.argmax(mean_at(shape, tokens) < 0.7 * TOP)])


def scores(rng: np.random.Generator, kind: str, mean: Floats) -> tuple[Floats, Floats]:
    """Draw examples and summed scores of documents (D) with true mean ``mean``."""
    one = np.ones(len(mean))

    def beta(concentration: float, of: Floats = mean) -> Floats:
        return rng.beta(concentration * of, concentration * (1.0 - of))

    if kind == "replicates":
        return one, rng.binomial(3, beta(4.0)) / 3.0
    if kind == "questions":
        shared = np.clip(beta(9.0), 1e-6, 1 - 1e-6)
        return 3 * one, sum((beta(9.0, shared) for _ in range(3)), np.zeros(len(mean)))
    return one, beta({"f1": 4.0, "narrow": 20.0, "wide": 0.5}[kind])


def draw(rng: np.random.Generator, kind: str, shape: str, design: tuple[int, int]) -> Documents:
    bins, per_bin = design
    edges = np.linspace(np.log(SHORTEST), np.log(LONGEST), bins + 1)
    x = rng.uniform(edges[:-1, None], edges[1:, None], (bins, per_bin)).ravel()
    lengths = np.sort(np.exp(x).astype(np.int64))
    n, s = scores(rng, kind, mean_at(shape, lengths.astype(float)))
    return Documents(lengths, n, s, False)


def one(
    seed: int, kind: str, shape: str, design: tuple[int, int], judged: int
) -> tuple[bool, bool | None, bool | None, float]:
    """Return whether the interval covers, the printed one does (or None), the cap is unsafe."""
    rng = np.random.default_rng((seed, KINDS.index(kind), SHAPES.index(shape), *design))
    documents = draw(rng, kind, shape, design)
    ends = documents.length_tokens[[0, -1]].astype(float)
    top, bottom = mean_at(shape, ends)
    truth = 1.0 - bottom / top
    verdict = Verdict.STABLE
    if seed < judged:
        verdict = find_verdict(documents, SETTINGS, baseline_of(documents, SETTINGS)).verdict
    curve = fit_falling_curve(documents, BASELINE_SHARE)
    unsafe = (certified_cap(curve, 0.3, 0.95).tokens or 0) > true_length(shape)
    drop = curve.drop(0.95)
    holds = drop.low <= truth <= drop.high
    printed = holds if verdict in PRINTED else None
    return holds, printed, unsafe, float(curve.dispersion.mean())


def share(hits: int, runs: int) -> str:
    if not runs:
        return "none"
    if 0 < hits < runs:
        low, high = agreeing_interval(hits / runs, runs, 0.95)
    else:
        low, high = agreeing_interval(float(hits > 0), runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--judged", type=int, default=100, help="runs that get a verdict")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    given = parser.parse_args()
    print("| scores | fall | bins x documents | coverage | printed | unsafe caps | dispersion |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(given.jobs) as pool:
        for kind, shape, design in product(given.kinds, given.shapes, DESIGNS):
            case = partial(one, kind=kind, shape=shape, design=design, judged=given.judged)
            done = list(pool.map(case, range(given.runs), chunksize=10))
            printed = [p for _, p, _, _ in done if p is not None]
            print(
                f"| {kind} | {shape} | {design[0]} x {design[1]} "
                f"| {share(sum(h for h, *_ in done), len(done))} "
                f"| {share(sum(printed), len(printed))} "
                f"| {share(sum(bool(u) for _, _, u, _ in done), len(done))} "
                f"| {np.median([d for *_, d in done]):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
