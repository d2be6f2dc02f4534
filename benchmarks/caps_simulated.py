"""How safe and how short the caps are, on curves of known truth.

    python benchmarks/caps_simulated.py [--runs 500] [--per-bin 20] [--jobs 2]

Two models like the reference ones: 0/1 scores, a plateau of .98, logistic in log length, half
height at 512 tokens and .10 at 2.25 times that; the second four times longer. 10 quantile bins x n
documents, log-uniform lengths of 40 to 5,900 tokens. L70 is the length at which 30% of the plateau
is lost. Besides, the verdicts on flat curves and on shuffled lengths, and the CPU time of a whole
profile. Shares come with their 95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contextcliff_dagster.analysis.baseline import baseline_of
from contextcliff_dagster.analysis.cap import certified_cap
from contextcliff_dagster.analysis.intervals import chi_square_quantile
from contextcliff_dagster.analysis.profile import AnalysisSettings, ProfileContext, profile_model
from contextcliff_dagster.analysis.units import Documents
from contextcliff_dagster.analysis.verdict import find_verdict
from contextcliff_dagster.contracts import Verdict

Floats = NDArray[np.float64]
PLATEAU, HALF, GONE = 0.98, 512.0, 2.25
WIDTH = np.log(GONE) / np.log(PLATEAU / 0.10 - 1.0)
SETTINGS = AnalysisSettings(permutations=199, resamples=100)


def ramp(tokens: Floats, half: float) -> Floats:
    out: Floats = PLATEAU / (1.0 + np.exp((np.log(tokens) - np.log(half)) / WIDTH))
    return out


def true_length(half: float, tolerance: float = 0.3) -> float:
    """Tokens at which ``tolerance`` of the plateau is lost."""
    return float(half * np.exp(WIDTH * np.log(tolerance / (1.0 - tolerance))))


def lengths_of(rng: np.random.Generator, per_bin: int) -> NDArray[np.int64]:
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    drawn = [rng.choice(part, per_bin, replace=False) for part in np.array_split(pool, 10)]
    return np.sort(np.concatenate(drawn))


def judge(lengths: NDArray[np.int64], scores: Floats) -> tuple[Verdict, int]:
    """Verdict and cap (0: none) of one question a document."""
    documents = Documents(lengths, np.ones(len(lengths)), scores, True)
    baseline = baseline_of(documents, SETTINGS)
    finding = find_verdict(documents, SETTINGS, baseline["mean"])
    if finding.fit is None or finding.verdict is Verdict.FLOOR:
        return finding.verdict, 0
    dip = finding.cliff if finding.verdict is Verdict.DIP else None
    before = None if dip is None else int(dip.location.low)
    ends = (baseline["to_tokens"], int(lengths[-1]))
    return finding.verdict, certified_cap(finding.fit, 0.3, 0.95, ends, before).tokens or 0


def one_run(seed: int, per_bin: int) -> tuple[list[tuple[Verdict, int]], list[Verdict]]:
    """Both ramps, then: flat .95, flat .55, each ramp with its lengths shuffled."""
    rng = np.random.default_rng(seed)
    ramps, others = [], []
    for half in (HALF, 4 * HALF):
        lengths = lengths_of(rng, per_bin)
        scores = (rng.random(len(lengths)) < ramp(lengths.astype(float), half)).astype(float)
        ramps.append(judge(lengths, scores))
        others.append(judge(lengths, rng.permutation(scores))[0])
    for level in (0.95, 0.55):
        lengths = lengths_of(rng, per_bin)
        others.append(judge(lengths, (rng.random(len(lengths)) < level).astype(float))[0])
    return ramps, others


def share(hits: int, runs: int) -> str:
    z2 = chi_square_quantile(0.95)
    p = hits / runs
    middle = (p + z2 / (2 * runs)) / (1 + z2 / runs)
    half = np.sqrt(z2 * (p * (1 - p) / runs + z2 / (4 * runs**2))) / (1 + z2 / runs)
    return f"{p:.3f} [{max(0.0, middle - half):.3f}, {middle + half:.3f}]"


def cpu_of_a_profile() -> float:
    """CPU seconds of ``profile_model`` on 400 records with the default 2,000 resamples."""
    rng = np.random.default_rng(0)
    lengths = lengths_of(rng, 40)
    scores = (rng.random(400) < ramp(lengths.astype(float), HALF)).astype(float)
    records = pd.DataFrame({"length_tokens": lengths, "score": scores, "failed": scores == 0})
    records["document_id"] = records["example_id"] = [f"d{i}" for i in range(400)]
    records["ttft_ms"] = records["duration_ms"] = 5 + 0.02 * lengths
    start = time.process_time()
    profile_model(records, [], AnalysisSettings(), ProfileContext("simulated", window_tokens=8_192))
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--per-bin", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    run: Callable[[int], tuple[list[tuple[Verdict, int]], list[Verdict]]] = partial(
        one_run, per_bin=options.per_bin
    )
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run, range(options.runs), chunksize=10))
    runs = len(results)
    print(f"{runs} runs a model, 10 bins x {options.per_bin}, tolerance 30%, confidence 95%\n")
    print(
        "| model | L70 | beyond L70 | below 0.5 x L70 | in [0.7, 1] | median cap / L70 | verdicts |"
    )
    print("|---|---|---|---|---|---|---|")
    for i, (name, half) in enumerate((("short", HALF), ("long", 4 * HALF))):
        truth = true_length(half)
        ratio = np.array([ramps[i][1] for ramps, _ in results]) / truth
        near = int(((ratio >= 0.7) & (ratio <= 1)).sum())
        verdicts = Counter(ramps[i][0].value for ramps, _ in results)
        told = ", ".join(f"{k} {v}" for k, v in verdicts.most_common())
        print(
            f"| {name} | {truth:.0f} | {share(int((ratio > 1).sum()), runs)} "
            f"| {share(int((ratio < 0.5).sum()), runs)} | {near / runs:.2f} "
            f"| {np.median(ratio):.2f} | {told} |"
        )
    wrong = sum(ramps[0][1] >= ramps[1][1] for ramps, _ in results)
    print(f"\nCaps in the wrong order: {share(wrong, runs)}")
    names = ("short, lengths shuffled", "long, lengths shuffled", "flat .95", "flat .55")
    for i, name in enumerate(names):
        alarms = sum(others[i] is not Verdict.STABLE for _, others in results)
        print(f"Not stable, {name}: {share(alarms, runs)}")
    print(f"\nCPU of profile_model, 400 records, 2,000 resamples: {cpu_of_a_profile():.2f} s")


if __name__ == "__main__":
    main()
