"""False-alarm rate per year of the check `no_shrink`, and its power for a real shrink.

    python benchmarks/regression.py [--years 400] [--shrinks 300] [--sentinels 300] [--known 5]
        [--kinds flips,noise,weeks,bursts] [--questions 1] [--json FILE]

A year has one pinned baseline, 52 runs, two models of 10 bins x 20 examples. "flips": every call's
answer differs from the baseline's with 5% probability. "noise": baseline and runs are both flips of
the same hidden answers. "weeks": as noise, the flip rate Beta distributed over runs, mean and SD
5%. "bursts": as noise, 1.5% and spells of 25 neighbouring calls in which half of the answers flip,
.56 spells a run (5% in all), calls in the seeded blocks of studies. "redrawn": every run draws its
answers anew (temperature above 0), far noisier than allowed for. The year fails when one run fails
for one model; runs before it count as unchanged, and ``--known`` more before the year.

A shrink: the curve of one of the two models moves to half the length (its cap halves) while its
hidden luck per example and the flips stay; a share of the answers is lost at all lengths, also by a
server that answers the same every time; and reference-short answers under reference-long's name
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

from contextcliff_dagster.analysis.contrast import Pairs, Side
from contextcliff_dagster.analysis.regression import (
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
    """Return examples in order of length, with ``questions`` neighbours per document."""
    document = np.arange(len(a)) // questions
    count = int(document[-1]) + 1
    place = np.zeros(count, dtype=np.int64)
    n = np.bincount(document).astype(float)
    first = lengths[::questions][:count]
    sides = [Side(first, n, np.bincount(document, weights=s), place, True) for s in (a, b)]
    return Pairs(True, *sides, [], a.astype(float), b.astype(float), document, 0, 0)


def call_order(rng: np.random.Generator, size: int, questions: int) -> np.ndarray:
    """Return each example's position among the calls, in blocks of one document per bin."""
    per_bin = -(-size // (BINS * questions))
    block = np.concatenate([rng.permutation(per_bin) for _ in range(BINS)])
    documents = np.lexsort((rng.random(len(block)), block))
    place = np.empty(len(documents), np.int64)
    place[documents] = np.arange(len(documents))
    examples = np.arange(size)
    return np.argsort(np.argsort(place[examples // questions] * questions + examples % questions))


def flipped(
    rng: np.random.Generator, answers: np.ndarray, kind: str = "flips", questions: int = 1
) -> np.ndarray:
    rate: float | np.ndarray = FLIPS
    if kind == "weeks":
        rate = rng.beta(0.9, 17.1)
    elif kind == "bursts":
        at = call_order(rng, len(answers), questions)
        rate = np.full(len(answers), 0.015)
        for _ in range(rng.poisson(0.56 * len(answers) / 200)):
            first = rng.integers(-24, len(answers))
            rate[(at >= first) & (at < first + 25)] = 0.5
    return np.where(rng.random(len(answers)) < rate, 1 - answers, answers)


def shrink_of(pairs: Pairs, known: list[Pairs], seed: int) -> bool:
    alpha = SETTINGS.alpha(MODELS)
    return find_shrink(
        pairs, alpha, unchanged=known, flip_rate=SETTINGS.flip_rate, seed=seed
    ).shrunk


def failing_run(curve: Curve, kind: str, questions: int, known: int, seed: int) -> int | None:
    """Return the first run (from 1) of an unchanged year that fails for one of the models."""
    rng = np.random.default_rng(seed)
    failing = []
    for _ in range(MODELS):
        lengths = lengths_of(rng)
        mean = curve(lengths.astype(float))
        hidden = (rng.random(len(lengths)) < mean).astype(float)
        pinned = hidden if kind == "flips" else flipped(rng, hidden, kind, questions)
        runs: list[Pairs] = []
        for run in range(-known, RUNS):
            if kind == "redrawn":
                now = (rng.random(len(lengths)) < mean).astype(float)
            else:
                now = flipped(rng, hidden, kind, questions)
            pairs = pairs_of(lengths, pinned, now, questions)
            if run >= 0 and shrink_of(pairs, runs, seed * RUNS + run):
                failing.append(run + 1)
                break
            runs.append(pairs)
    return min(failing, default=None)


def shrink_found(
    before: Curve, after: Curve, questions: int, known: int, same: bool, seed: int
) -> bool:
    rng = np.random.default_rng(seed)
    lengths = lengths_of(rng)
    luck = rng.random(len(lengths))

    def answers(curve: Curve) -> np.ndarray:
        hidden = (luck < curve(lengths.astype(float))).astype(float)
        return hidden if same else flipped(rng, hidden)

    pinned, now = answers(before), answers(after)
    runs = [pairs_of(lengths, pinned, answers(before), questions) for _ in range(known)]
    return shrink_of(pairs_of(lengths, pinned, now, questions), runs, seed)


def sentinel_sample(rng: np.random.Generator, curve: Curve) -> np.ndarray:
    """Draw the lengths of twenty examples in the cap's decile."""
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    lost = pool[np.argmax(curve(pool.astype(float)) <= 0.7 * curve(pool[:1].astype(float)))]
    parts = np.array_split(pool, BINS)
    place = max(sum(part[0] <= 0.8 * lost for part in parts) - 1, 1)
    return np.sort(rng.choice(parts[place], 20, replace=False))


def sentinel_fails(pairs: Pairs) -> bool:
    alpha = RegressionSettings(runs_per_year=365).alpha(MODELS)
    return find_sentinel_shrink(pairs, alpha).shrunk


def sentinel_year_fails(curve: Curve, kind: str, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    for _ in range(MODELS):
        lengths = sentinel_sample(rng, curve)
        hidden = (rng.random(len(lengths)) < curve(lengths.astype(float))).astype(float)
        pinned = hidden if kind == "flips" else flipped(rng, hidden, kind)
        for _ in range(365):
            if sentinel_fails(pairs_of(lengths, pinned, flipped(rng, hidden, kind), 1)):
                return True
    return False


def sentinel_finds(before: Curve, after: Curve, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    lengths = sentinel_sample(rng, before)
    luck = rng.random(len(lengths))
    hidden, other = (
        (luck < curve(lengths.astype(float))).astype(float) for curve in (before, after)
    )
    pinned, now = flipped(rng, hidden), flipped(rng, other)
    return sentinel_fails(pairs_of(lengths, pinned, now, 1))


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
    parser.add_argument("--known", type=int, default=5)
    parser.add_argument("--kinds", default="flips,noise,weeks,bursts,redrawn")
    parser.add_argument("--questions", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    known, questions, kinds = given.known, given.questions, given.kinds.split(",")
    rows: list[dict[str, Any]] = []

    def count(what: str, name: str, one: Callable[[int], Any], of: int) -> list[Any]:
        start = time.time()
        results = [one(seed) for seed in range(of)]
        label = f"{name}, {known} known, {questions}/doc"
        report(rows, what, label, sum(map(bool, results)), of, time.time() - start)
        return results

    cases = {f"halved, {n}": (c, halved(c)) for n, c in CURVES.items() if "flat" not in n}
    cases["reference-short for -long"] = (ramp(1_600), ramp(400))
    for share in (0.1, 0.2, 0.3, 0.45):
        cases[f"flat at .95, {share:.0%} lost"] = (step(1, 0.95, 0), step(1, 0.95, share))
    for name, (a, b) in cases.items() if given.shrinks else ():
        for what, same in (("found at first run", False), ("found, server the same", True)):
            if not same or name.startswith("flat"):
                count(
                    what,
                    name,
                    lambda seed, a=a, b=b, same=same: shrink_found(
                        a, b, questions, known, same, seed
                    ),
                    given.shrinks,
                )
    for name, c in CURVES.items() if given.sentinels else ():
        if "flat" in name:
            continue
        count(
            "found by a sentinel",
            f"halved, {name}",
            lambda seed, c=c: sentinel_finds(c, halved(c), seed),
            given.sentinels,
        )
        for kind in kinds:
            count(
                f"sentinel year, {kind}",
                name,
                lambda seed, c=c, kind=kind: sentinel_year_fails(c, kind, seed),
                given.sentinels // 3,
            )
    for kind in kinds if given.years else ():
        first: list[int] = []
        for name, c in CURVES.items():
            runs = count(
                f"false year, {kind}",
                name,
                lambda seed, c=c, kind=kind: failing_run(c, kind, questions, known, seed),
                given.years,
            )
            first += [run for run in runs if run]
        every = given.years * len(CURVES)
        report(rows, f"false year, {kind}", "all curves", len(first), every, 0.0)
        report(rows, f"first 5 runs, {kind}", "all curves", sum(r <= 5 for r in first), every, 0.0)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
