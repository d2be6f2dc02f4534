"""How often the check `no_shrink` fails for nothing in a year, and how surely for a real shrink.

    python benchmarks/regression.py [--years 400] [--shrinks 300] [--sentinels 300] [--json FILE]

A year: one pinned baseline, 52 runs, two models of 10 bins x 20 examples. "flips": every call's
answer differs from the baseline's with 5% probability. "noise": baseline and runs are both flips of
the same hidden answers. "redrawn": every run draws its answers anew (temperature above 0), far
noisier than allowed for. The year fails when one run fails for one model.

A shrink: the curve of one of the two models moves to half the length (its cap halves) while its
hidden luck per example and the flips stay; and reference-short answers under reference-long's name
(curves of their cards' shape). Detected: at the first run. A sentinel: twenty examples of the bin
that holds the cap (.8 of where 30% is lost); a year of it has 365 runs. Intervals are Clopper and
Pearson's 95%.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contextcliff_dagster.analysis.comparison.pairing import Pairs, Side
from contextcliff_dagster.analysis.comparison.regression import (
    RegressionSettings,
    find_sentinel_shrink,
    find_shrink,
)

FLIPS = 0.05
SETTINGS = RegressionSettings()
MODELS, BINS, RUNS = 2, 10, 52
Curve = Callable[[np.ndarray], np.ndarray]


def ramp(half: float, top: float = 0.98, gone: float = 2.25) -> Curve:
    width = np.log(gone) / np.log(top / 0.10 - 1)
    return lambda tokens: top / (1 + np.exp((np.log(tokens) - np.log(half)) / width))


def step(at: float, before: float, drop: float) -> Curve:
    return lambda tokens: np.where(tokens < at, before, before * (1 - drop))


def lengths_of(rng: np.random.Generator, per_bin: int = 20) -> np.ndarray:
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    drawn = [rng.choice(part, per_bin, replace=False) for part in np.array_split(pool, BINS)]
    return np.sort(np.concatenate(drawn))


def pairs_of(lengths: np.ndarray, a: np.ndarray, b: np.ndarray, questions: int) -> Pairs:
    """Examples in order of length, ``questions`` neighbours to a document."""
    document = np.arange(len(a)) // questions
    count = int(document[-1]) + 1
    place = np.zeros(count, dtype=np.int64)
    n = np.bincount(document).astype(float)
    first = lengths[::questions][:count]
    sides = [Side(first, n, np.bincount(document, weights=s), place) for s in (a, b)]
    return Pairs(True, *sides, [], a.astype(float), b.astype(float), document, 0, 0)


def flipped(rng: np.random.Generator, answers: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(answers)) < FLIPS, 1 - answers, answers)


def fails(lengths: np.ndarray, a: np.ndarray, b: np.ndarray, questions: int, seed: int) -> bool:
    pairs = pairs_of(lengths, a, b, questions)
    alpha = SETTINGS.alpha(MODELS)
    return find_shrink(pairs, alpha, flip_rate=SETTINGS.flip_rate, seed=seed).shrunk


def year_fails(curve: Curve, kind: str, questions: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    for _ in range(MODELS):
        lengths = lengths_of(rng)
        mean = curve(lengths.astype(float))
        hidden = (rng.random(len(lengths)) < mean).astype(float)
        pinned = flipped(rng, hidden) if kind == "noise" else hidden
        for run in range(RUNS):
            if kind == "redrawn":
                now = (rng.random(len(lengths)) < mean).astype(float)
            else:
                now = flipped(rng, hidden)
            if fails(lengths, pinned, now, questions, seed * RUNS + run):
                return True
    return False


def shrink_found(before: Curve, after: Curve, questions: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    lengths = lengths_of(rng)
    luck = rng.random(len(lengths))
    pinned = flipped(rng, (luck < before(lengths.astype(float))).astype(float))
    now = flipped(rng, (luck < after(lengths.astype(float))).astype(float))
    return fails(lengths, pinned, now, questions, seed)


def sentinel_sample(rng: np.random.Generator, curve: Curve) -> np.ndarray:
    """Lengths of twenty examples of the cap's decile."""
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    lost = pool[np.argmax(curve(pool.astype(float)) <= 0.7 * curve(pool[:1].astype(float)))]
    parts = np.array_split(pool, BINS)
    place = max(sum(part[0] <= 0.8 * lost for part in parts) - 1, 1)
    return np.sort(rng.choice(parts[place], 20, replace=False))


def sentinel_fails(lengths: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    alpha = RegressionSettings(runs_per_year=365).alpha(MODELS)
    return find_sentinel_shrink(pairs_of(lengths, a, b, 1), alpha).shrunk


def sentinel_year_fails(curve: Curve, kind: str, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    for _ in range(MODELS):
        lengths = sentinel_sample(rng, curve)
        hidden = (rng.random(len(lengths)) < curve(lengths.astype(float))).astype(float)
        pinned = flipped(rng, hidden) if kind == "noise" else hidden
        if any(sentinel_fails(lengths, pinned, flipped(rng, hidden)) for _ in range(365)):
            return True
    return False


def sentinel_finds(before: Curve, after: Curve, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    lengths = sentinel_sample(rng, before)
    luck = rng.random(len(lengths))
    pinned, now = (
        flipped(rng, (luck < curve(lengths.astype(float))).astype(float))
        for curve in (before, after)
    )
    return sentinel_fails(lengths, pinned, now)


def halved(curve: Curve) -> Curve:
    return lambda tokens: curve(2 * tokens)


CURVES: dict[str, Curve] = {
    "like reference-long": ramp(1_600),
    "step, .95 to .52": step(1_500, 0.95, 0.45),
    "step, .95 to .28": step(1_500, 0.95, 0.70),
    "step, .75 to .41": step(1_500, 0.75, 0.45),
    "step, .55 to .30": step(1_500, 0.55, 0.45),
    "step, .55 to .16": step(1_500, 0.55, 0.70),
    "flat at 1": step(1e9, 1.0, 0.0),
    "flat at .75": step(1e9, 0.75, 0.0),
}


def limits(hits: int, of: int) -> tuple[float, float]:
    from scipy.stats import beta

    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(0.975, hits + 1, of - hits))
    return low, high


def report(rows: list[dict[str, Any]], what: str, name: str, hits: int, of: int, t: float) -> None:
    low, high = limits(hits, of)
    rows.append({"what": what, "case": name, "rate": hits / of, "of": of, "ci": [low, high]})
    print(
        f"{what:22} {name:34} {hits / of:.3f} [{low:.3f}, {high:.3f}] of {of}  {t:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--years", type=int, default=400)
    parser.add_argument("--shrinks", type=int, default=300)
    parser.add_argument("--sentinels", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if given.shrinks:
        cases = {
            f"halved, {name}": (curve, halved(curve))
            for name, curve in CURVES.items()
            if "flat" not in name
        }
        cases["reference-short for -long"] = (ramp(1_600), ramp(400))
        for name, (before, after) in cases.items():
            for questions in (1, 4):
                start = time.time()
                found = [shrink_found(before, after, questions, i) for i in range(given.shrinks)]
                label = f"{name}, {questions}/doc"
                report(
                    rows, "found at first run", label, sum(found), len(found), time.time() - start
                )
    for name, curve in CURVES.items():
        if not given.sentinels or "flat" in name:
            continue
        start = time.time()
        found = [sentinel_finds(curve, halved(curve), i) for i in range(given.sentinels)]
        report(
            rows,
            "found by a sentinel",
            f"halved, {name}",
            sum(found),
            len(found),
            time.time() - start,
        )
        for kind in ("flips", "noise"):
            start = time.time()
            years = [sentinel_year_fails(curve, kind, i) for i in range(given.sentinels // 3)]
            report(
                rows, f"sentinel year, {kind}", name, sum(years), len(years), time.time() - start
            )
    if given.years:
        for kind in ("flips", "noise", "redrawn"):
            for name, curve in CURVES.items():
                start = time.time()
                failed = [year_fails(curve, kind, 1, i) for i in range(given.years)]
                report(
                    rows, f"false year, {kind}", name, sum(failed), len(failed), time.time() - start
                )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
