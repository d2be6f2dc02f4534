"""Tokens saved by targeted sampling after a pilot, and whether the error rates still hold.

    python benchmarks/sequential.py [--sets 200] [--until 5] [--classes NAME ...] [--ways NAME ...]

Each data set is a pool of 2,000 questions on documents of log-normal length, all answered from a
planted curve. A pilot of 5 a bin, then batches where a token is expected to be most informative,
until the window of ± 5% of the examples has the loss with 95%, until "no loss" has 95%, or until
each of the ten bins has given 100. Single cells are drawn in batches of 10, and whole bins, as in a
study, in rounds of 10, 20 and 50. Coverage refers to the midpoint of the drop. "Uniform" treats all
bins equally, batch by batch, and stops by the same rule. Verdict and cap are computed by `conclude`
from all the data drawn.

Shares have 95% limits (Wilson); tokens as the ratio of means, its limits by bootstrap
over data sets; 1 where "uniform" is not among the ways asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray
from planted import SHAPES, Shape

from contextcliff_dagster.analysis.cliff import DEPTH, baseline_of, chance_allowed, conclude
from contextcliff_dagster.analysis.design.allocation import apportion, take_aim, weigh
from contextcliff_dagster.analysis.design.error_rates import Design, Pool, simulate_pool
from contextcliff_dagster.analysis.design.true_curves import Curve, locate_loss, rank_cells
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts import Verdict

Ints = NDArray[np.int64]
SETTINGS = AnalysisSettings(permutations=199, resamples=100)
DROP = DEPTH * SETTINGS.tolerance
BINS, PILOT, MOST, POOL = 10, 5, 100, 2_000
SINGLE = Design()
BINARY = Design(binary=True)
MIXED = Design(questions=(1, 8), correlation=0.15)
CLUSTERED = Design(questions=(8, 8), correlation=0.3)
WAYS = {
    "cells, 10": ("cell", 10),
    "bins, 10": ("bin", 10),
    "bins, 20": ("bin", 20),
    "bins, 50": ("bin", 50),
}


def curve_of(kind: str, rng: np.random.Generator) -> Curve:
    """Draw a curve of ``kind`` with random parameters."""
    baseline = 0.95 if rng.random() < 0.15 else rng.uniform(0.45, 0.75)
    drop, place = rng.uniform(0.35, 0.80), rng.uniform(0.20, 0.85)
    if kind == "flat":
        return Curve("flat", baseline)
    if kind == "mild":
        return Curve("ramp", baseline, rng.uniform(0.05, 0.20), 0.15, 1.0)
    if kind == "dip":
        return Curve("dip", baseline, drop, place, min(place + rng.uniform(0.15, 0.30), 1.0))
    if kind == "ramp":
        return Curve("ramp", baseline, drop, place, min(place + rng.uniform(0.1, 0.5), 1.0))
    if kind == "logistic":
        return Curve("logistic", 0.98, 0.97, place, min(place + rng.uniform(0.03, 0.12), 1.0))
    return Curve("step", baseline, drop, place)


CLASSES: dict[str, tuple[Design, str]] = {
    "steps": (SINGLE, "step"),
    "steps, 0/1": (BINARY, "step"),
    "steps, 1-8 questions": (MIXED, "step"),
    "steps, clustered": (CLUSTERED, "step"),
    "flat": (SINGLE, "flat"),
    "flat, 0/1": (BINARY, "flat"),
    "flat, clustered": (CLUSTERED, "flat"),
    "mild": (SINGLE, "mild"),
    "ramps": (SINGLE, "ramp"),
    "ramps, 0/1": (BINARY, "ramp"),
    "logistic, 0/1": (BINARY, "logistic"),
    "dips": (SINGLE, "dip"),
    **{name: (BINARY, name) for name in SHAPES if name.startswith(("stairs", "decay", "five"))},
}


def pool_of(kind: str, rng: np.random.Generator) -> tuple[Pool, Curve | Shape]:
    """Draw the answers to a pool, and return them with the truth."""
    design, of = CLASSES[kind]
    if of not in SHAPES:
        curve = curve_of(of, rng)
        return simulate_pool(design, curve, rng), curve
    shape = SHAPES[of](rng)
    lengths = np.sort(np.exp(rng.normal(9.0, 1.0, POOL)).astype(np.int64)) + 1
    if shape.lengths:
        lengths = np.repeat(1_000 * 2 ** np.arange(shape.lengths), POOL // shape.lengths)
    share = np.searchsorted(lengths, lengths) / POOL
    score = (rng.random(POOL) < shape.mean_at(share)).astype(np.float64)
    return Pool(lengths, np.arange(POOL), score, share), shape


class Sampler:
    """A sampler that draws from a pool in a fixed order, new documents first."""

    def __init__(self, pool: Pool, rng: np.random.Generator) -> None:
        count = len(pool.score)
        self.pool, self.taken = pool, np.zeros(count, dtype=bool)
        self.bin = np.arange(count) * BINS // count
        self.cells = rank_cells(pool.length_tokens)
        self.cell = self.cells.of(pool.length_tokens)
        # The n-th question of its document, in random order; then documents in random order.
        order = np.lexsort((rng.random(count), pool.document))
        starts = np.searchsorted(pool.document, pool.document)
        turn = np.empty(count, dtype=np.int64)
        turn[order] = np.arange(count) - starts[order]
        place = rng.permutation(int(pool.document.max()) + 1)[pool.document]
        self.order = np.lexsort((place, turn))

    def take(self, group: Ints, wanted: Ints) -> None:
        free = self.order[~self.taken[self.order]]
        of = group[free]
        for g in np.flatnonzero(wanted):
            self.taken[free[of == g][: wanted[g]]] = True

    def left(self, group: Ints, count: int) -> Ints:
        """Return the questions still available in ``group``; a bin gives at most ``MOST``."""
        there = np.bincount(group[~self.taken], minlength=count)
        spent = np.bincount(self.bin[self.taken], minlength=BINS)
        if count == BINS:
            return np.minimum(there, MOST - spent)
        bin_of_cell = np.minimum(np.arange(count) * BINS // count, BINS - 1)
        return np.minimum(there, np.maximum(MOST - spent, 0)[bin_of_cell])


def sample(pool: Pool, unit: str, batch: int, half_width: float, seed: int, uniform: bool):
    """Draw until the rule stops; return (documents, aim, tokens, batches)."""
    rng = np.random.default_rng(seed)
    draw = Sampler(pool, rng)
    cells = draw.cells
    draw.take(draw.bin, np.full(BINS, PILOT))
    count = len(cells.share)
    group = draw.cell if unit == "cell" else draw.bin
    middle = 0.5 * (cells.starts[:-1] + cells.starts[1:])
    by_group = np.arange(count) if unit == "cell" else (middle * BINS).astype(np.int64)
    groups = count if unit == "cell" else BINS
    batches = 0
    while True:
        documents = pool.documents(draw.taken)
        posterior = locate_loss(documents, cells, DROP)
        safe = 1.0 - chance_allowed(
            SETTINGS.tolerance, SETTINGS.confidence, float(documents.n.sum())
        )
        aim = take_aim(posterior, half_width, SETTINGS.confidence, safe)
        left = draw.left(draw.bin if uniform else group, BINS if uniform else groups)
        if aim.done or not left.sum():
            return documents, aim, int(pool.length_tokens[draw.taken].sum()), batches
        batches += 1
        if uniform:
            # Which bin a rest goes to is by lot, not by number.
            weight = np.full(BINS, 1.0) + 1e-6 * rng.random(BINS)
            draw.take(draw.bin, apportion(weight, left, batch))
            continue
        weight = weigh(posterior, aim.window, by_group, groups)
        if unit == "bin":
            draw.take(group, apportion(weight, left, batch))
        else:
            open_ = np.where(left > 0, weight, 0.0)
            chosen = rng.multinomial(batch, open_ / open_.sum())
            draw.take(group, np.minimum(chosen, left))


def one(kind: str, half_width: float, ways: tuple[str, ...], seed: int) -> dict[str, object]:
    """Simulate one data set; return its figures for each way to sample."""
    rng = np.random.default_rng((list(CLASSES).index(kind), seed))
    pool, curve = pool_of(kind, rng)
    truth = curve.first_loss(SETTINGS.tolerance, pool.share, np.log(pool.length_tokens))
    reached = curve.first_loss(DROP, pool.share, np.log(pool.length_tokens))
    limit = None if truth is None else float(pool.length_tokens[int(truth * len(pool.share))])
    out: dict[str, object] = {}
    for way in ways:
        unit, batch = WAYS.get(way, ("bin", 10))
        documents, aim, tokens, batches = sample(
            pool, unit, batch, half_width, seed, way == "uniform"
        )
        baseline = baseline_of(documents, SETTINGS)
        conclusion = conclude(documents, SETTINGS, baseline)
        cap = conclusion.cap.tokens
        cells = rank_cells(pool.length_tokens)
        low, high = cells.starts[aim.window.first], cells.starts[aim.window.last + 1]
        rank = float((pool.length_tokens <= (cap or 0)).mean())
        out[way] = {
            "tokens": tokens,
            "examples": int(documents.n.sum()),
            "batches": batches,
            "done": aim.done or "exhausted",
            "covered": reached is not None and bool(low - 0.005 <= reached <= high + 0.005),
            "alarm": conclusion.finding.verdict
            in (Verdict.CLIFF, Verdict.GRADUAL_DECLINE, Verdict.DECLINE, Verdict.DIP),
            "unsafe": cap is not None and limit is not None and cap >= limit,
            "cap_share": rank / truth if truth and cap else 0.0 if truth else rank,
        }
    return out


def wilson(hits: float, n: int) -> tuple[float, float, float]:
    """Return a share with its 95% limits (Wilson)."""
    if not n:
        return float("nan"), float("nan"), float("nan")
    p, z = hits / n, 1.959964
    centre, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return p, float((centre - half) / (1 + z * z / n)), float((centre + half) / (1 + z * z / n))


def summed(kind: str, way: str, rows: list[dict[str, dict[str, float]]]) -> dict[str, object]:
    """Return the rates of one class under one way to sample."""
    mine, uniform = ([row.get(name, row[way]) for row in rows] for name in (way, "uniform"))
    a, b = (np.array([row["tokens"] for row in of]) for of in (mine, uniform))
    resampled = np.random.default_rng(0).integers(0, len(a), (1_000, len(a)))
    ratios = a[resampled].mean(axis=1) / b[resampled].mean(axis=1)
    ended = {why: sum(row["done"] == why for row in mine) for why in ("located", "no_loss")}
    located = [row for row in mine if row["done"] == "located"]
    return {
        "class": kind,
        "way": way,
        "sets": len(rows),
        "tokens": (a.mean() / b.mean(), *np.quantile(ratios, (0.025, 0.975))),
        "median_tokens": float(np.median(a / b)),
        "examples": float(np.mean([row["examples"] for row in mine])),
        "batches": float(np.mean([row["batches"] for row in mine])),
        **ended,
        "coverage": wilson(sum(row["covered"] for row in located), len(located)),
        "alarms": wilson(sum(row["alarm"] for row in mine), len(mine)),
        "unsafe": wilson(sum(row["unsafe"] for row in mine), len(mine)),
        "cap": float(np.median([row["cap_share"] for row in mine])),
    }


def said(rate: tuple[float, ...]) -> str:
    return "{:.3f} ({:.3f}-{:.3f})".format(*rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--until", type=float, default=5.0, help="half-width, %% of the examples")
    parser.add_argument("--classes", nargs="*", default=list(CLASSES))
    parser.add_argument("--ways", nargs="*", default=[*WAYS, "uniform"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    began, results = time.perf_counter(), []
    with ProcessPoolExecutor(given.jobs) as workers:
        for kind in given.classes:
            work = partial(one, kind, given.until / 100.0, tuple(given.ways))
            rows = list(workers.map(work, range(given.sets), chunksize=5))
            for way in given.ways:
                r = summed(kind, way, rows)
                results.append(r)
                print(
                    f"{kind:22} {way:10} tokens {said(r['tokens'])} median {r['median_tokens']:.2f}"
                    f"  n {r['examples']:.0f} in {r['batches']:.0f}"
                    f"  located {r['located']} none {r['no_loss']} of {r['sets']}"
                    f"  covers {said(r['coverage'])}  alarms {said(r['alarms'])}"
                    f"  unsafe {said(r['unsafe'])}  cap {r['cap']:.2f}",
                    flush=True,
                )
    print(f"{time.perf_counter() - began:.0f} s")
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
