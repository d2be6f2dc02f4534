"""How safe and how short the caps are, on curves of known truth.

    python benchmarks/caps_simulated.py [--runs 500] [--judged 100] [--per-bin 20] [--jobs 2]

Each truth is a pair of models, the second four times longer: 0/1 scores, 10 quantile bins x n
documents, log-uniform lengths of 40 to 5,900 tokens. `shelf` has the shape that a small transformer
shows beyond its training length: flat, a sudden fall to two thirds, a shelf, then the rest. `ramp`
is logistic in log length (.98, half at 512 tokens, .10 at 2.25 times that), `step` falls from .98
to .45 and stays. L70 is the length at which 30% of the plateau is lost. Besides, the verdicts on
flat curves and on shuffled lengths, and the CPU time of a whole profile. Shares come with their
95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.cap import certified_cap
from contextcliff_dagster.analysis.cliff.conclusion import conclude
from contextcliff_dagster.analysis.curves.loss_family import fit_losses
from contextcliff_dagster.analysis.profile.model_profile import (
    AnalysisSettings,
    ProfileContext,
    profile_model,
)
from contextcliff_dagster.analysis.records.samples import Documents
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.contracts import Verdict

Floats = NDArray[np.float64]
SETTINGS = AnalysisSettings(permutations=199, resamples=100)
KINDS = ("shelf", "ramp", "step")
SCALES = (1.0, 4.0)
NOTHING = ("short, lengths shuffled", "long, lengths shuffled", "flat .95", "flat .55")
SHELF = np.array(
    [
        (40, 0.998), (207, 0.993), (273, 0.993), (309, 0.971), (351, 0.871), (399, 0.668),
        (453, 0.609), (519, 0.553), (600, 0.45), (700, 0.33), (850, 0.20), (1_000, 0.12),
        (1_152, 0.08), (2_000, 0.02), (8_000, 0.0),
    ]
)  # fmt: skip
RAMP_WIDTH = np.log(2.25) / np.log(0.98 / 0.10 - 1.0)


def mean_at(kind: str, tokens: Floats, scale: float) -> Floats:
    """True mean of a model of ``kind`` whose lengths are ``scale`` times the short one's."""
    x = np.log(tokens / scale)
    if kind == "shelf":
        shelf: Floats = np.interp(x, np.log(SHELF[:, 0]), SHELF[:, 1])
        return shelf
    if kind == "step":
        return np.where(x < np.log(400), 0.98, 0.45)
    out: Floats = 0.98 / (1.0 + np.exp((x - np.log(512)) / RAMP_WIDTH))
    return out


def true_length(kind: str, scale: float, tolerance: float = 0.3) -> float:
    """Tokens at which ``tolerance`` of the plateau is lost."""
    tokens = np.geomspace(40, 9_000, 20_000)
    mean = mean_at(kind, tokens, scale)
    return float(tokens[np.argmax(mean < (1.0 - tolerance) * mean[0])])


def lengths_of(rng: np.random.Generator, per_bin: int) -> NDArray[np.int64]:
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    drawn = [rng.choice(part, per_bin, replace=False) for part in np.array_split(pool, 10)]
    return np.sort(np.concatenate(drawn))


def plain_cap(documents: Documents) -> int:
    """Cap (0: none) without the verdict."""
    return certified_cap(fit_losses(documents, 0.3), 0.3, 0.95).tokens or 0


def true_half(kind: str, scale: float) -> float:
    """Tokens at which half of what is lost over the measured lengths is lost."""
    tokens = np.geomspace(40, 5_900, 20_000)
    mean = mean_at(kind, tokens, scale)
    return float(tokens[np.argmax(mean <= 0.5 * (mean[0] + mean[-1]))])


def judge(documents: Documents) -> tuple[Verdict, int, tuple[float, float] | None]:
    """Verdict, cap (0: none; dips included), and the interval of the half-drop."""
    found = conclude(documents, SETTINGS, baseline_of(documents, SETTINGS).mean)
    loss = found.finding.cliff
    place = None if loss is None else (loss.location.low, loss.location.high)
    return found.finding.verdict, found.cap.tokens or 0, place


def draw(rng: np.random.Generator, kind: str, scale: float, per_bin: int) -> Documents:
    lengths = lengths_of(rng, per_bin)
    scores = rng.random(len(lengths)) < mean_at(kind, lengths.astype(float), scale)
    return Documents(lengths, np.ones(len(lengths)), scores.astype(float), True)


Run = tuple[str, int, "bool | None"]
"""Verdict (empty: not judged), cap, and whether the half-drop's interval holds its place."""


def one_pair(seed: int, kind: str, per_bin: int, judged: int) -> list[Run]:
    """The short and the long model; the first ``judged`` runs get a verdict."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    pair: list[Run] = []
    for scale in SCALES:
        documents = draw(rng, kind, scale, per_bin)
        if seed < judged:
            verdict, cap, place = judge(documents)
            held = place and place[0] <= true_half(kind, scale) <= place[1]
            pair.append((verdict.value, cap, held))
        else:
            pair.append(("", plain_cap(documents), None))
    return pair


def one_flat(seed: int, per_bin: int) -> list[Verdict]:
    """Verdicts where there is nothing to find, in the order of ``NOTHING``."""
    rng = np.random.default_rng((seed, 99))
    verdicts = []
    for scale in SCALES:
        documents = draw(rng, "shelf", scale, per_bin)
        verdicts.append(judge(replace(documents, s=rng.permutation(documents.s)))[0])
    for level in (0.95, 0.55):
        documents = draw(rng, "shelf", 1.0, per_bin)
        scores = (rng.random(len(documents.n)) < level).astype(float)
        verdicts.append(judge(replace(documents, s=scores))[0])
    return verdicts


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
    scores = (rng.random(400) < mean_at("shelf", lengths.astype(float), 1.0)).astype(float)
    records = pd.DataFrame({"length_tokens": lengths, "score": scores, "failed": scores == 0})
    records["document_id"] = records["example_id"] = [f"d{i}" for i in range(400)]
    records["ttft_ms"] = records["duration_ms"] = 5 + 0.02 * lengths
    start = time.process_time()
    profile_model(records, [], AnalysisSettings(), ProfileContext("simulated", window_tokens=8_192))
    return time.process_time() - start


def row(name: str, kind: str, scale: float, results: list[Run]) -> str:
    truth, runs = true_length(kind, scale), len(results)
    ratio = np.array([cap for _, cap, _ in results]) / truth
    told = Counter(verdict for verdict, _, _ in results if verdict).most_common()
    held = [hit for _, _, hit in results if hit is not None]
    return (
        f"| {name} | {truth:.0f} | {share(int((ratio > 1).sum()), runs)} "
        f"| {share(int((ratio < 0.5).sum()), runs)} "
        f"| {((ratio >= 0.7) & (ratio <= 1)).mean():.2f} | {np.median(ratio):.2f} "
        f"| {share(sum(held), len(held)) if held else ''} "
        f"| {', '.join(f'{v} {n}' for v, n in told)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--judged", type=int, default=100, help="runs that get a verdict")
    parser.add_argument("--per-bin", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    runs, judged = options.runs, min(options.judged, options.runs)
    print(f"{runs} runs a model, 10 bins x {options.per_bin}, tolerance 30%, confidence 95%\n")
    print(
        "| truth | L70 | beyond L70 | below 0.5 x L70 | in [0.7, 1] | median cap / L70 "
        "| half-drop held | verdicts |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind in KINDS:
            one = partial(one_pair, kind=kind, per_bin=options.per_bin, judged=options.judged)
            pairs = list(pool.map(one, range(runs), chunksize=5))
            for i, scale in enumerate(SCALES):
                print(row(f"{kind}, {('short', 'long')[i]}", kind, scale, [p[i] for p in pairs]))
            wrong = sum(short[1] >= long[1] for short, long in pairs)
            print(f"| {kind}, in the wrong order | | {share(wrong, runs)} | | | | | |", flush=True)
        flat = list(
            pool.map(partial(one_flat, per_bin=options.per_bin), range(judged), chunksize=5)
        )
    for i, name in enumerate(NOTHING):
        alarms = sum(verdicts[i] is not Verdict.STABLE for verdicts in flat)
        print(f"Not stable, {name}: {share(alarms, judged)}")
    print(f"\nCPU of profile_model, 400 records, 2,000 resamples: {cpu_of_a_profile():.2f} s")


if __name__ == "__main__":
    main()
