"""How often a latency cap is found where there is none, and how near the planted one it lies.

    python benchmarks/latency_caps.py [--runs 500] [--jobs 2] [--only WORD]

Ten bins of n calls over log-uniform or log-normal lengths. Times are a + b L + c L^2 (five servers,
from constant to mostly attention) times log-normal noise; in the planted classes calls longer than
a length drawn from 20 to 85% of the samples take longer by a factor. Beyond the promised class
(noise .2): fewer calls, more noise, slower or faster servers, stalls (3% of the calls take five
times as long), a chunked prefill (a law in steps of 512 tokens), a law with L log L, questions
that share a document's noise (averaged, as the profile does), and changes near the ends. Shares
come with their 95% limits (Wilson, exact at 0 and 1).

"within": of all data sets, those whose most likely change lies within 15% of the planted length;
"cap within": the same for the latency cap itself, the first likely change; "beyond": caps above the
planted length.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.latency.joint_cap import ERROR_SHARE, by_document
from contextcliff_dagster.analysis.latency.slowdown import find_slowdown
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
    Design("+50%, place 85 to 95%", 1.5, place=(0.85, 0.95)),
    Design("+50%, place 5 to 20%", 1.5, place=(0.05, 0.20)),
)


def draw(rng: np.random.Generator, design: Design) -> tuple[Floats, Floats, float]:
    """Lengths and times of all calls, and the planted length."""
    if rng.random() < 0.5:
        pool = np.exp(rng.uniform(np.log(200), np.log(60_000), 3_000))
    else:
        pool = np.exp(rng.normal(np.log(6_000), 1.0, 3_000)).clip(100, 128_000)
    per_bin = max(design.n // design.questions, 1)
    parts = np.array_split(np.sort(pool).round(), BINS)
    lengths = np.sort(np.concatenate([rng.choice(p, per_bin, replace=False) for p in parts]))
    a, b, c = SERVERS[rng.integers(len(SERVERS))]
    seen = np.ceil(lengths / design.chunk) * design.chunk if design.chunk else lengths
    ms = a + b * seen + c * seen**2
    if design.loglinear:
        ms = a + 0.02 * lengths * np.log(lengths)
    planted = float(np.quantile(lengths, rng.uniform(*design.place)))
    ms = ms * np.where(lengths > planted, design.factor, 1.0)
    shared = rng.normal(0, design.noise / np.sqrt(2), len(lengths))
    lengths, ms = np.repeat(lengths, design.questions), np.repeat(ms, design.questions)
    if design.questions > 1:
        own = rng.normal(0, design.noise / np.sqrt(2), len(lengths))
        noise = np.repeat(shared, design.questions) + own
    else:
        noise = rng.normal(0, design.noise, len(lengths))
    ms = ms * np.exp(noise)
    return lengths, np.where(rng.random(len(ms)) < design.stalls, 5 * ms, ms), planted


def one(seed: int, design: Design) -> tuple[bool, float, float]:
    """Whether a slowdown was found; its place and its cap over the planted length."""
    rng = np.random.default_rng((seed, DESIGNS.index(design)))
    lengths, ms, planted = draw(rng, design)
    units = np.repeat(np.arange(len(ms)), design.questions)[: len(ms)]
    lengths, ms = by_document(lengths, ms, units)
    test = find_slowdown(lengths, ms, alpha=0.05 * ERROR_SHARE, permutations=999, seed=0)
    if test is None or test.slowdown is None:
        return False, np.nan, np.nan
    slowdown = test.slowdown
    return True, slowdown.last_normal_tokens / planted, slowdown.earliest_tokens / planted


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="designs whose name holds this")
    given = parser.parse_args()
    print(
        "| slowdown | found | within 15% | cap within 15% | cap beyond it | median cap / planted |"
    )
    print("|---|---|---|---|---|---|")
    with ProcessPoolExecutor(given.jobs) as pool:
        for design in (d for d in DESIGNS if given.only in d.name):
            done = list(pool.map(partial(one, design=design), range(given.runs), chunksize=20))
            found = [(place, cap) for hit, place, cap in done if hit]
            cells = [share(len(found), given.runs)]
            if design.factor > 1:
                near = sum(abs(place - 1) <= 0.15 for place, _ in found)
                cap_near = sum(abs(cap - 1) <= 0.15 for _, cap in found)
                beyond = sum(cap > 1 for _, cap in found)
                cells += [share(k, given.runs) for k in (near, cap_near, beyond)]
                cells.append(f"{np.median([cap for _, cap in found]):.2f}" if found else "none")
            else:
                cells += ["", "", "", ""]
            print(f"| {design.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
