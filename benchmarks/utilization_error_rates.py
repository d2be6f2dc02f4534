"""Error rates of the conclusions of `utilization`, on outcomes drawn from planted laws.

    python benchmarks/utilization_error_rates.py [--runs 200] [--equal 1000] [--jobs 2]

Documents have 4 questions at 8 scales, 1k to 128k; 10 seeds of one benchmark, or of three pooled
(30 documents per scale). "alike": intraclass correlation of the questions on one document, .3 or
none, drawn separately for each format (chances from a beta distribution).

"divergence": prose is lost from a length drawn log-uniformly from 3k to 24k, JSON lines from 3 or 6
times that; the score falls from "top" to "chance", as a step or as 1 / (1 + (x / L)^slope); "less"
is what prose scores less throughout. The true divergence is where the laws differ by the margin of
.1. "covered": share of intervals that hold it; "width": median factor between the ends, "-" where
an end is open; "parted": share of runs in which the band says so. "alone": the same for an interval
from tests of single scales and their neighbours, without curves.

"equal": both formats have one law (flat, or lost from 10k). "different": runs in which the verdict
names a better format or calls it a matter of the benchmark, or the formats part; of three
benchmarks, so that all verdicts are possible. "one": the same of one benchmark. "sup-t": share of
runs in which a bootstrap band of the largest deviation, its SD at least one question's, excludes 0.

"band": share of bands that hold the true differences of all scales and their mean at once, and the
mean half-width; "sup-t" as above. "margin left": share of runs in which the band leaves the margin
where the difference is exactly the margin at each scale.

"power": share of runs in which a true difference is shown at the number of seeds that a first run
of 10 says is needed: by the exact permutation test at one scale, and by the band.

"time": CPU seconds of the analysis of 3 benchmarks, 2 formats, 8 scales, 10 seeds, 4 questions.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.contrast import sign_flip_p_value, student
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import band_quantile
from contextcliff_dagster.extensions.utilization.analysis.answers import (
    Matched,
    Question,
    Scale,
    Side,
)
from contextcliff_dagster.extensions.utilization.analysis.comparison import (
    difference_limits,
    likeness_of,
    locate_divergence,
    seeds_needed,
)
from contextcliff_dagster.extensions.utilization.analysis.wording import beyond_zero
from contextcliff_dagster.extensions.utilization.results import Divergence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Law = Callable[[Floats], Floats]
QUESTIONS, MARGIN, SEEDS = 4, 0.1, 10
SCALES = [Scale(f"{2**i}k", 1_000 * 2**i) for i in range(8)]
X = np.array([scale.tokens for scale in SCALES], np.float64)
SETTINGS = AnalysisSettings()
CORRELATIONS = (0.0, 0.3)


class Readers(NamedTuple):
    """Chance of a right answer by length and format; ``documents``: per scale and benchmark."""

    a: Law
    b: Law
    correlation: float
    benchmarks: int = 1
    documents: int = SEEDS


def flat(chance: float) -> Law:
    return lambda x: np.full(len(x), chance)


def lost(at: float, top: float, chance: float, slope: float) -> Law:
    def law(x: Floats) -> Floats:
        kept = (x < at).astype(np.float64) if np.isinf(slope) else 1 / (1 + (x / at) ** slope)
        return chance + (top - chance) * kept

    return law


def drawn(readers: Readers, rng: np.random.Generator) -> Matched:
    """Draw the outcomes of both formats, with a benchmark's documents adjacent."""
    count = readers.benchmarks * readers.documents
    shape = (count, len(X), QUESTIONS)
    document = np.arange(count * len(X)).reshape(count, len(X))
    benchmark = np.arange(count) // readers.documents
    index = np.broadcast_to(np.arange(len(X)), shape[:2])
    stratum = benchmark[:, None] * len(X) + index
    documents, strata, scales = (
        np.repeat(of.ravel(), QUESTIONS) for of in (document, stratum, index)
    )
    seed = np.repeat(np.arange(count) % readers.documents, len(X) * QUESTIONS)
    question = np.tile(np.arange(QUESTIONS), count * len(X))
    sides = []
    for law in (readers.a, readers.b):
        chance = np.broadcast_to(law(X), shape[:2]).copy()
        if readers.correlation:
            odds = 1.0 / readers.correlation - 1.0
            open_ = (chance > 1e-6) & (chance < 1 - 1e-6)
            chance[open_] = rng.beta(chance[open_] * odds, (1.0 - chance[open_]) * odds)
        score = (rng.random(shape) < chance[:, :, None]).astype(np.float64).ravel()
        tokens, kind = np.zeros(len(score)), np.full(len(score), "lookup")
        sides.append(Side(documents, strata, scales, seed, question, score, tokens, kind))
    return Matched(sides[0], sides[1], True, np.zeros(len(X), np.int64))


def bands_of(matched: Matched) -> list[tuple[float, float]]:
    """Return the bands of the mean over scales, then of each scale."""
    likeness, z = likeness_of(matched), band_quantile(SETTINGS.confidence, len(X) + 1)
    parts = [matched, *(matched.at_scale(i) for i in range(len(X)))]
    return [difference_limits(part, likeness, z) for part in parts]


def divergence_of(matched: Matched, bands: Sequence[tuple[float, float]], seed: int) -> Divergence:
    settings = AnalysisSettings(seed=seed)
    asked = Question("jsonl", "prose", None, SCALES, MARGIN, settings)
    return locate_divergence(
        matched, likeness_of(matched), list(bands[1:]), list(range(len(X))), asked
    )


def alone(matched: Matched) -> tuple[float, float]:
    """Return the divergence interval from tests of scales: it ends at the first band outside the
    margin, and starts where 1, 2 or 4 scales are not below it (tail shares .7, .2, .1)."""
    likeness = likeness_of(matched)
    tail = 0.5 * (1.0 - SETTINGS.confidence)
    z = band_quantile(SETTINGS.confidence, len(X) + 1)
    shown = [
        i for i in range(len(X)) if difference_limits(matched.at_scale(i), likeness, z)[0] > MARGIN
    ]
    last = shown[0] if shown else len(X)
    for first in range(last + 1):
        refused = False
        for width, share in ((1, 0.7), (2, 0.2), (4, 0.1)):
            if first + width <= len(X):
                inside = (matched.a.scale >= first) & (matched.a.scale < first + width)
                least = band_quantile(1.0 - 2.0 * tail * share, 1)
                limits = difference_limits(matched.where(inside, inside), likeness, least)
                refused |= limits[1] < MARGIN
        if not refused or first == last:
            break
    return (X[first - 1] if first else 0.0), (X[last] if last < len(X) else np.inf)


def bootstrap_weights(strata: Ints, resamples: int, rng: np.random.Generator) -> Floats:
    """Return each document's count in each resample, the sample itself first (D, 1 + resamples).

    Each stratum draws one document fewer than it has, weighted up to its size (Rao and Wu 1988,
    JASA 83, 231-241).
    """
    weights = np.ones((len(strata), 1 + resamples))
    for group in np.unique(strata):
        inside = np.flatnonzero(strata == group)
        count = len(inside)
        drawn = rng.multinomial(count - 1, np.full(count, 1.0 / count), size=resamples).T
        weights[inside, 1:] = drawn * (count / (count - 1))
    return weights


def sup_t(matched: Matched, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the bootstrap band of the largest deviation: (lower, upper), of the mean first."""
    n, s, stratum = matched.a.by_document()
    change = s - matched.b.by_document()[1]
    weights = bootstrap_weights(stratum, 500, rng)
    inside = np.column_stack([np.ones(len(n)), stratum[:, None] % len(X) == np.arange(len(X))])
    means = ((inside * change[:, None]).T @ weights) / ((inside * n[:, None]).T @ weights)
    documents = inside.sum(axis=0)
    sd = np.maximum(means[:, 1:].std(axis=1), 1.0 / documents / QUESTIONS)
    deviation = np.abs(means[:, 1:] - means[:, :1]) / sd[:, None]
    quantile = max(float(np.quantile(deviation.max(axis=0), SETTINGS.confidence)), 2.0)
    half = student(quantile, documents) * sd
    return means[:, 0] - half, means[:, 0] + half


def divergence_of_laws(a: Law, b: Law) -> float:
    """Return the first length at which two laws differ by the margin, found by bisection."""
    fine = np.geomspace(X[0], X[-1], 2_001)
    place = int(np.argmax(a(fine) - b(fine) > MARGIN))
    low, high = fine[place - 1], fine[place]
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = (a(np.array([middle])) - b(np.array([middle])))[0] > MARGIN
        low, high = (low, middle) if above else (middle, high)
    return float(high)


def one_divergence(
    law: tuple[float, float, float, float], alike: float, benchmarks: int, run: int
) -> tuple[bool, float, bool, float, bool]:
    rng = np.random.default_rng((run, benchmarks, round(10 * alike)))
    top, chance, slope, less = law
    prose_at = float(np.exp(rng.uniform(np.log(3_000), np.log(24_000))))
    json_at = prose_at * float(rng.choice([3.0, 6.0]))
    a, b = (
        lost(json_at, top, chance, slope),
        lost(prose_at, top - less, max(chance - less, 0.0), slope),
    )
    truth = divergence_of_laws(a, b)
    matched = drawn(Readers(a, b, alike, benchmarks), rng)
    found = divergence_of(matched, bands_of(matched), run)
    low, high = found.low_tokens or 0.0, found.high_tokens or np.inf
    first, last = alone(matched)
    return (
        low < truth <= high,
        high / low if low else np.inf,
        first < truth <= last,
        last / first if first else np.inf,
        found.status != "not_parted",
    )


def one_equal(law: Law, alike: float, run: int) -> tuple[bool, bool, bool]:
    rng = np.random.default_rng((run, 77))
    matched = drawn(Readers(law, law, alike, 3), rng)
    benchmark = matched.a.stratum // len(X)
    ways, parted = [], False
    for scope in (None, 0, 1, 2):
        inside = benchmark == scope if scope is not None else benchmark >= 0
        bands = bands_of(matched.where(inside, inside))
        signs = {beyond_zero(*band) for band in bands}
        ways.append(2 if {1, -1} <= signs else sum(signs))
        parted |= scope is None and any(low > MARGIN or high < -MARGIN for low, high in bands[1:])
    different = ways[0] in (1, -1) or {1, -1} <= set(ways[1:]) or parted
    lows, highs = sup_t(matched, rng)
    return different, ways[1] in (1, -1), bool(((lows > 0) | (highs < 0)).any())


def one_band(readers: Readers, run: int) -> tuple[bool, float, bool, float, bool]:
    rng = np.random.default_rng((run, 78))
    matched = drawn(readers, rng)
    true = readers.a(X) - readers.b(X)
    true = np.concatenate([[true.mean()], true])
    low, high = np.array(bands_of(matched)).T
    other_low, other_high = sup_t(matched, rng)
    return (
        bool(((low <= true + 1e-9) & (true <= high + 1e-9)).all()),
        float((high - low).mean() / 2),
        bool(((other_low <= true) & (true <= other_high)).all()),
        float((other_high - other_low).mean() / 2),
        bool((low[1:] > MARGIN).any()),
    )


def one_power(
    base: float, difference: float, alike: float, run: int
) -> tuple[bool, bool, int | None, int | None]:
    rng = np.random.default_rng((run, 79))
    first = drawn(Readers(flat(base), flat(base), alike), rng)
    noise = float(np.abs(first.a.score - first.b.score).mean())
    row = next(
        row
        for row in seeds_needed(first, likeness_of(first), noise, len(X) + 1, SETTINGS.confidence)
        if row.difference == difference
    )
    readers = Readers(flat(base), flat(base - difference), alike, 1, row.one_scale or 2)
    at = drawn(readers, rng).at_scale(0)
    change = at.a.by_document()[1] - at.b.by_document()[1]
    alone_shown = sign_flip_p_value(change, 999, rng)[0] <= 0.05
    matched = drawn(readers._replace(documents=row.all_scales or 2), rng)
    low, _ = bands_of(matched)[1]
    return alone_shown, low > 0.0, row.one_scale, row.all_scales


def share(hits: Sequence[bool]) -> str:
    return f"{np.mean(hits):.3f}"


def factor(widths: Sequence[float]) -> str:
    middle = float(np.quantile(widths, 0.5, method="inverted_cdf"))
    return f"{middle:5.1f}" if np.isfinite(middle) else "    -"


LAWS = (
    (1.0, 0.05, np.inf, 0.0),
    (0.95, 0.05, np.inf, 0.0),
    (0.9, 0.1, np.inf, 0.0),
    (1.0, 0.05, 8.0, 0.0),
    (0.9, 0.1, 8.0, 0.0),
    (1.0, 0.05, 4.0, 0.0),
    (0.9, 0.1, 4.0, 0.0),
    (0.9, 0.1, 2.0, 0.0),
    (0.95, 0.05, 8.0, 0.05),
)


def show_divergence(pool: ProcessPoolExecutor, runs: int) -> None:
    print(
        "divergence  top chance slope  less alike documents  covered width parted |"
        " alone: covered width"
    )
    for law in LAWS:
        for benchmarks in (1, 3):
            for alike in CORRELATIONS:
                one = partial(one_divergence, law, alike, benchmarks)
                found = list(zip(*pool.map(one, range(runs), chunksize=10), strict=True))
                print(
                    f"{'':10} {law[0]:4} {law[1]:6} {law[2]:5} {law[3]:5} {alike:5}"
                    f" {SEEDS * benchmarks:9} {share(found[0]):>8} {factor(found[1])}"
                    f" {share(found[4]):>6} | {share(found[2]):>14} {factor(found[3])}",
                    flush=True,
                )


def show_equal(pool: ProcessPoolExecutor, runs: int) -> None:
    print("\nequal                        alike  different   one  sup-t")
    laws = {f"flat at {p}": flat(p) for p in (0.98, 0.9, 0.7, 0.5, 0.2)}
    for name in [*laws, "lost from 10k"]:
        for alike in CORRELATIONS:
            found = zip(
                *pool.map(partial(_equal, name, alike), range(runs), chunksize=20), strict=True
            )
            different, one, other = map(share, found)
            print(f"{name:28} {alike:5} {different:>10} {one:>5} {other:>6}", flush=True)


def _equal(name: str, alike: float, run: int) -> tuple[bool, bool, bool]:
    law = lost(10_000, 0.95, 0.1, 4) if name.startswith("lost") else flat(float(name[8:]))
    return one_equal(law, alike, run)


def _band(
    name: str, alike: float, benchmarks: int, run: int
) -> tuple[bool, float, bool, float, bool]:
    return one_band(Readers(*BANDS[name], alike, benchmarks), run)


BANDS: dict[str, tuple[Law, Law]] = {
    "equal at 1": (flat(1.0), flat(1.0)),
    "equal at .9": (flat(0.9), flat(0.9)),
    ".9 and .8 (the margin)": (flat(0.9), flat(0.8)),
    "1 and .9 (the margin)": (flat(1.0), flat(0.9)),
    ".5 and .4 (the margin)": (flat(0.5), flat(0.4)),
    ".7 and .3": (flat(0.7), flat(0.3)),
    "lost from 20k and 6k": (lost(20_000, 0.95, 0.05, 4), lost(6_000, 0.95, 0.05, 4)),
}


def show_bands(pool: ProcessPoolExecutor, runs: int) -> None:
    print(
        "\nband                     alike documents   holds half | sup-t: holds half  margin left"
    )
    for name in BANDS:
        for benchmarks in (1, 3):
            for alike in CORRELATIONS:
                one = partial(_band, name, alike, benchmarks)
                found = list(zip(*pool.map(one, range(runs), chunksize=20), strict=True))
                left = share(found[4]) if "margin" in name else ""
                print(
                    f"{name:24} {alike:5} {SEEDS * benchmarks:9} {share(found[0]):>7}"
                    f" {np.mean(found[1]):.2f} | {share(found[2]):>12} {np.mean(found[3]):.2f}"
                    f" {left:>12}",
                    flush=True,
                )


def show_power(pool: ProcessPoolExecutor, runs: int) -> None:
    print("\npower      base difference alike  seeds: one scale, band   power: one scale, band")
    for base in (1.0, 0.9, 0.6):
        for difference in (0.1, 0.2):
            for alike in CORRELATIONS:
                one = partial(one_power, base, difference, alike)
                found = list(zip(*pool.map(one, range(runs), chunksize=10), strict=True))
                seeds = ", ".join(f"{np.median(of):.0f}" for of in found[2:])
                print(
                    f"{'':9} {base:5} {difference:10} {alike:5} {seeds:>23}"
                    f" {share(found[0]):>18}, {share(found[1])}",
                    flush=True,
                )


def show_time() -> None:
    import pandas as pd

    from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model

    rng = np.random.default_rng(0)
    at = {"jsonl": 40_000.0, "prose": 9_000.0}
    rows = [
        {
            "benchmark": benchmark, "format": format, "scale": scale.label,
            "scale_tokens": scale.tokens, "seed": seed, "question": question, "arm": "base",
            "document_key": f"{benchmark}/{scale.label}/{seed}", "question_kind": "lookup",
            "records": scale.tokens // 25, "length_tokens": scale.tokens + seed,
            "evidence_position": rng.random(),
            "score": float(rng.random() < (0.95 if scale.tokens < at[format] else 0.05)),
        }
        for benchmark in ("warehouse", "constraints", "network")
        for format in at
        for scale in SCALES
        for seed in range(SEEDS)
        for question in range(QUESTIONS)
    ]  # fmt: skip
    records = pd.DataFrame(rows)
    analyse_model(records)  # imports
    start = time.process_time()
    result = analyse_model(records)
    print(f"\ntime: {time.process_time() - start:.1f} CPU s; {' '.join(result.headline)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=200, help="of divergence and power; twice as many of bands"
    )
    parser.add_argument("--equal", type=int, default=1_000, help="of equal readers")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        show_divergence(pool, given.runs)
        show_equal(pool, given.equal)
        show_bands(pool, 2 * given.runs)
        show_power(pool, given.runs)
    show_time()


if __name__ == "__main__":
    main()
