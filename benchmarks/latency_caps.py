"""False-alarm rate of latency caps, and their distance from the planted ones.

    python benchmarks/latency_caps.py [slowdowns|limits] [--runs 500] [--jobs 2] [--only WORD]

Ten bins of n calls over log-uniform or log-normal lengths. Times are a + b L + c L^2 (five servers,
from constant to mostly attention) times log-normal noise.

``slowdowns``: calls longer than a length drawn from 20 to 85% of the samples take longer by a
factor, and by 50 ms to 5 s where the slowdown begins (all times are scaled to that; without a
slowdown as if it were one by half). Found is a slowdown that a user notices, which limits the cap
without a limit of the user's. Beyond the promised class (noise .2): fewer calls, more noise, slower
or faster servers, stalls (3% of the calls take five times as long), a chunked prefill (a law in
steps of 512 tokens), a law with L log L, questions that share a document's noise, and changes near
the ends. "within": of all data sets, those whose most likely change lies within 15% of the planted
length; "cap within": the same for the cap itself, the first likely change; "beyond": caps above the
planted length.

``limits``: the 95th percentile of the times crosses the user's limit at a length drawn from 20 to
95% of the samples. "beyond": the reported length is above it; "covered": median share of the calls
up to the true length that are within the reported one; "exceeded": the length beyond which the
limit is reported as exceeded is below the true one; "none": no length is reported.

Shares come with their 95% limits (Wilson, exact at 0 and 1).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from contextcliff_dagster.analysis.latency import (
    ERROR_SHARE,
    by_document,
    find_slowdown,
    judge_limit,
    noticed,
)
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

Floats = NDArray[np.float64]
SERVERS = (
    (500.0, 0.0, 0.0),
    (20.0, 0.05, 0.0),
    (500.0, 0.05, 0.0),
    (20.0, 0.02, 3e-6),
    (1.0, 0.001, 2e-5),
)
BINS = 10


@dataclass(frozen=True)
class Design:
    name: str
    factor: float = 1.0
    n: int = 20
    noise: float = 0.2
    stalls: float = 0.0
    chunk: int = 0
    loglinear: bool = False
    questions: int = 1
    place: tuple[float, float] = (0.20, 0.85)
    scatter: str = "same"
    lengths: int = 0


DESIGNS = (
    Design("none, n = 20"),
    Design("none, n = 5", n=5),
    Design("none, n = 50", n=50),
    Design("none, noise .5", noise=0.5),
    Design("none, stalls", stalls=0.03),
    Design("none, prefill in chunks of 512", chunk=512),
    Design("none, noise .05, prefill in chunks of 512", chunk=512, noise=0.05),
    Design("none, law with L log L", loglinear=True),
    Design("none, 4 questions a document", questions=4),
    Design("+50%, n = 20", 1.5),
    Design("+50%, n = 10", 1.5, n=10),
    Design("+50%, n = 5", 1.5, n=5),
    Design("+50%, n = 50", 1.5, n=50),
    Design("+25%, n = 20", 1.25),
    Design("+100%, n = 20", 2.0),
    Design("+50%, noise .5", 1.5, noise=0.5),
    Design("+50%, stalls", 1.5, stalls=0.03),
    Design("+50%, at 85 to 95%", 1.5, place=(0.85, 0.95)),
    Design("+50%, at 5 to 20%", 1.5, place=(0.05, 0.20)),
)


LIMITS = (
    Design("n = 20"),
    Design("n = 10", n=10),
    Design("n = 50", n=50),
    Design("noise .05", noise=0.05),
    Design("noise .5", noise=0.5),
    Design("stalls", stalls=0.03),
    Design("prefill in chunks of 512", chunk=512),
    Design("law with L log L", loglinear=True),
    Design("2 questions a document", questions=2),
    Design("scatter that grows from .05 to .5", scatter="grows"),
    Design("scatter that falls from .5 to .05", scatter="falls"),
    Design("five lengths", lengths=5),
    Design("slower by half beyond a length", 1.5),
    Design("the same, n = 50", 1.5, n=50),
    Design("slower by three beyond a length", 3.0),
    Design("crossed soon after such a step", 3.0, place=(0.0, 0.0)),
    Design("crossed at 90 to 100%", place=(0.90, 1.00)),
    Design("never crossed, by 2 to 20%", place=(1.02, 1.20)),
)


def draw_lengths(rng: np.random.Generator, design: Design) -> Floats:
    """Draw the lengths of all bins' documents."""
    if rng.random() < 0.5:
        pool = np.exp(rng.uniform(np.log(200), np.log(60_000), 3_000))
    else:
        pool = np.exp(rng.normal(np.log(6_000), 1.0, 3_000)).clip(100, 128_000)
    per_bin = max(design.n // design.questions, 1)
    parts = np.array_split(np.sort(pool).round(), BINS)
    lengths = np.sort(np.concatenate([rng.choice(p, per_bin, replace=False) for p in parts]))
    if design.lengths:
        lengths = np.concatenate(
            [
                np.full(len(part), np.median(part).round())
                for part in np.array_split(lengths, design.lengths)
            ]
        )
    return lengths


def law_of(rng: np.random.Generator, design: Design, planted: float) -> Callable[[Floats], Floats]:
    """Return the time law (ms, no noise), slower by ``factor`` (50 ms to 5 s) past ``planted``."""
    # A constant time crosses a limit nowhere.
    a, b, c = SERVERS[rng.integers(0 if design in DESIGNS or design.factor > 1 else 1, 5)]

    def ms(lengths: Floats) -> Floats:
        seen = np.ceil(lengths / design.chunk) * design.chunk if design.chunk else lengths
        if design.loglinear:
            return a + 0.02 * lengths * np.log(lengths)
        out: Floats = a + b * seen + c * seen**2
        return out

    late = np.exp(rng.uniform(np.log(50), np.log(5_000)))
    at = float(ms(np.array([planted]))[0])
    scale = late / ((design.factor - 1.0 or 0.5) * at)
    return lambda lengths: scale * ms(lengths) * np.where(lengths > planted, design.factor, 1.0)


def noise_of(rng: np.random.Generator, design: Design, documents: int) -> Floats:
    """Draw standard normal noise of all calls; half the variance is shared within a document."""
    own = rng.normal(0, 1, documents * design.questions)
    if design.questions == 1:
        return own
    shared = np.repeat(rng.normal(0, 1, documents), design.questions)
    return (own + shared) / np.sqrt(2)


def stalled(rng: np.random.Generator, design: Design, ms: Floats) -> Floats:
    return np.where(rng.random(len(ms)) < design.stalls, 5 * ms, ms)


def one_slowdown(seed: int, design: Design) -> tuple[bool, float, float]:
    """Return whether a slowdown was found, its place and its cap over the planted length."""
    rng = np.random.default_rng((seed, DESIGNS.index(design)))
    documents = draw_lengths(rng, design)
    planted = float(np.quantile(documents, rng.uniform(*design.place)))
    normal = law_of(rng, design, planted)
    lengths = np.repeat(documents, design.questions)
    noise = noise_of(rng, design, len(documents))
    ms = stalled(rng, design, normal(lengths) * np.exp(design.noise * noise))
    units = np.repeat(np.arange(len(documents)), design.questions)
    lengths, ms = by_document(lengths, ms, units)
    test = find_slowdown(lengths, ms, alpha=0.05 * ERROR_SHARE, permutations=999, seed=0)
    slow = None if test is None else noticed(test)
    if slow is None:
        return False, np.nan, np.nan
    return True, slow.last_normal_tokens / planted, slow.earliest_tokens / planted


def one_limit(seed: int, design: Design) -> tuple[bool, float, bool, bool]:
    """Judge the named length: beyond the true one, its reach, exceeded too early, or missing."""
    rng = np.random.default_rng((seed, 1_000 + LIMITS.index(design)))
    documents = draw_lengths(rng, design)
    planted = float(np.quantile(documents, rng.uniform(0.20, 0.85)))
    normal = law_of(rng, design, planted)
    longest = float(np.log(documents[-1]))
    span = longest - float(np.log(documents[0]))

    def sd(lengths: Floats) -> Floats:
        ahead = np.clip((longest - np.log(lengths)) / span, 0.0, 1.0)
        by = {"same": design.noise, "grows": 0.5 - 0.45 * ahead, "falls": 0.05 + 0.45 * ahead}
        return np.broadcast_to(by[design.scatter], np.shape(lengths))

    grid = np.unique(np.concatenate([documents, np.geomspace(documents[0], documents[-1], 4_000)]))
    p95 = np.maximum.accumulate(normal(grid) * _p95(design, sd(grid)))
    place = rng.uniform(*design.place)
    if place > 1:
        limit = p95[-1] * place
    elif design.factor > 1 and place == 0:
        at = min(float(np.searchsorted(documents, planted)) / len(documents) + 0.1, 1.0)
        limit = float(np.interp(np.quantile(documents, at), grid, p95))
    elif design.factor > 1:
        before = grid <= planted
        limit = p95[before][-1] * rng.uniform(1.02, 0.98 * design.factor)
    else:
        limit = float(np.interp(np.quantile(documents, place), grid, p95))
    kept = p95 <= limit * (1 + 1e-9)
    truth = np.inf if kept.all() else float(grid[kept][-1]) if kept.any() else 0.0
    lengths = np.repeat(documents, design.questions)
    noise = noise_of(rng, design, len(documents))
    ms = stalled(rng, design, normal(lengths) * np.exp(sd(lengths) * noise))
    units = np.repeat(np.arange(len(documents)), design.questions)
    found = judge_limit(lengths, ms, units, limit, 0.95)
    named = found.tokens or 0
    reach = (lengths <= named).sum() / max((lengths <= truth).sum(), 1)
    whole = found.tokens is not None and found.tokens == found.longest_tokens
    beyond = np.isfinite(truth) and (whole or named > truth)
    early = found.passed_by_tokens is not None and found.passed_by_tokens <= truth
    return bool(beyond), float(reach), bool(early), found.tokens is None


def _p95(design: Design, sd: Floats) -> Floats:
    """Return the 95th percentile of the noise factor, including stalls."""
    z = np.linspace(0.0, 4.0, 4_001)
    if not design.stalls:
        return np.exp(norm.ppf(0.95) * sd)
    slow = norm.cdf((z - np.log(5)) / design.noise)
    below = (1 - design.stalls) * norm.cdf(z / design.noise) + design.stalls * slow
    return np.full(np.shape(sd), np.exp(z[np.searchsorted(below, 0.95)]))


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def slowdown_row(done: list[tuple[bool, float, float]], design: Design) -> list[str]:
    runs, found = len(done), [(place, cap) for hit, place, cap in done if hit]
    cells = [share(len(found), runs)]
    if design.factor == 1:
        return [*cells, "", "", "", ""]
    near = sum(abs(place - 1) <= 0.15 for place, _ in found)
    cap_near = sum(abs(cap - 1) <= 0.15 for _, cap in found)
    beyond = sum(cap > 1 for _, cap in found)
    cells += [share(k, runs) for k in (near, cap_near, beyond)]
    return [*cells, f"{np.median([cap for _, cap in found]):.2f}" if found else "none"]


def limit_row(done: list[tuple[bool, float, bool, bool]], design: Design) -> list[str]:
    beyond, reach, early, none = zip(*done, strict=True)
    exact = design.place[0] > 1
    return [
        "" if exact else share(sum(beyond), len(done)),
        f"{np.median(reach):.2f}",
        share(sum(early), len(done)),
        share(sum(none), len(done)),
    ]


TABLES = {
    "slowdowns": (
        "| slowdown | found | within 15% | cap within 15% | cap beyond it | median cap / planted |",
        DESIGNS,
        one_slowdown,
        slowdown_row,
    ),
    "limits": (
        "| times | named length beyond the true one | covered | exceeded too early | none named |",
        LIMITS,
        one_limit,
        limit_row,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", choices=[*TABLES], nargs="?", default="slowdowns")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="designs whose name holds this")
    given = parser.parse_args()
    head, designs, one, row = TABLES[given.table]
    print(f"{head}\n|{'---|' * (head.count('|') - 1)}")
    with ProcessPoolExecutor(given.jobs) as pool:
        for design in (d for d in designs if given.only in d.name):
            done = list(pool.map(partial(one, design=design), range(given.runs), chunksize=20))
            print(f"| {design.name} | {' | '.join(row(done, design))} |", flush=True)


if __name__ == "__main__":
    main()
