"""Error rates of `contextcliff analyze --aggregated` on tables of means with a known truth.

    python benchmarks/aggregated.py [--runs 100] [--per-length 20,100] [--lengths exact,binned]
        [--only step,dip] [--jobs 2]

Curves and scores are those of accept.py, with ten lengths and one question per document unless
stated otherwise. For each length, a table has what a paper prints: tokens, mean, n. "exact": all
documents of a length are that long. "binned": documents of log-normal lengths are grouped by
decile, with the median as the length. Conclusions are drawn as by the command. A cap is unsafe
beyond the first length at which the true mean has lost 30% of its value at the first length.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from accept import ALARMS, SETTINGS, Outcome, share, summarise
from planted import CURVES

from contextcliff_dagster.analysis.cliff import Conclusion, baseline_of, conclude
from contextcliff_dagster.analysis.design.error_rates import (
    Design,
    Drawn,
    simulate,
    simulate_sample,
)
from contextcliff_dagster.analysis.design.true_curves import Curve
from contextcliff_dagster.analysis.profile import examples_of
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents, clean_records
from contextcliff_dagster.score_files import MeansTable

LENGTHS = 10
SHORTEST, LONGEST = 1_000.0, 128_000.0
TOLERANCE = 0.3
OF_TABLES = (
    "flat .55", "flat .95", "flat .50, 0/1", "mild decline", "step", "step, 0/1", "step from .95",
    "dip", "ramp", "ramp, 0/1", "logistic, 0/1", "decline from the start",
)  # fmt: skip
CLUSTERED = "step, 8 a document in the sample"
HEAD = (
    "| class | lengths | n | tables | alarms | unsafe caps | cap / truth (flat: of the range) "
    "| no cap |\n|---|---|---|---|---|---|---|---|"
)


def table_of(documents: Documents, *, binned: bool) -> MeansTable:
    """Return mean and n of ten lengths: the documents' own, or medians of ten groups of equal n."""
    tokens, n, s = documents.length_tokens, documents.n, documents.s
    if binned:
        group = ((np.cumsum(n) - 0.5 * n) / n.sum() * LENGTHS).astype(np.int64)
    else:
        group = np.unique(tokens, return_inverse=True)[1]
    total = np.bincount(group, weights=n)
    places = [int(np.median(tokens[group == i])) for i in range(int(group[-1]) + 1)]
    mean = np.bincount(group, weights=s) / total
    return MeansTable(None, np.array(places, np.int64), np.round(mean, 4), total)


def one(seed: int, name: str, per_length: int, binned: bool) -> Outcome:
    rng = np.random.default_rng((seed, per_length, list(CURVES).index(name), binned))
    draw_curve, draw_design = CURVES[name]
    curve, design = draw_curve(rng), draw_design(rng, per_length)
    if name != CLUSTERED:
        design = replace(design, questions=(1, 1))
    drawn = simulate(design, curve, rng) if binned else exact(design, curve, rng)
    table = table_of(drawn.documents, binned=binned)
    conclusion = concluded(table, replace(SETTINGS, seed=seed, tolerance=TOLERANCE))
    cap = conclusion.cap.tokens
    # The stricter truth: lost is what the shortest document would have had.
    truth = curve.first_loss(TOLERANCE, drawn.share, drawn.log_length, baseline_share=0.0)
    return Outcome(
        alarm=conclusion.finding.verdict.value in ALARMS,
        cap=None if cap is None else drawn.share_up_to(cap),
        truth=truth,
        from_first=truth,
        log_error=None,
        held=None,
        log_width=None,
    )


def concluded(table: MeansTable, settings: AnalysisSettings) -> Conclusion:
    """Return the verdict and cap of a table, like `aggregated.profile_table` with less output."""
    documents = clean_records(examples_of(table), []).documents()
    return conclude(documents, settings, baseline_of(documents, settings))


def exact(design: Design, curve: Curve, rng: np.random.Generator) -> Drawn:
    """Draw documents of ten lengths, with ``design.per_bin`` questions at each length."""
    each = design.questions[0]
    grid = np.geomspace(SHORTEST, LONGEST, LENGTHS).round().astype(np.int64)
    lengths = np.repeat(grid, max(design.per_bin // each, 1))
    return simulate_sample(lengths, np.full(len(lengths), each), design, curve, rng)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--per-length", default="20,100", help="n of each length")
    parser.add_argument("--lengths", default="exact,binned")
    parser.add_argument("--only", default="", help="beginnings of class names, by comma")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    wanted = [n for n in (*OF_TABLES, CLUSTERED) if n.startswith(tuple(given.only.split(",")))]
    start = time.time()
    with ProcessPoolExecutor(given.jobs) as pool:
        for per_length in map(int, given.per_length.split(",")):
            for kind in given.lengths.split(","):
                binned = kind == "binned"
                print(HEAD, flush=True)
                unsafe = lost = 0
                for name in wanted:
                    work = partial(one, name=name, per_length=per_length, binned=binned)
                    outcomes = list(pool.map(work, range(given.runs), chunksize=5))
                    row = summarise(name, per_length, TOLERANCE, outcomes)
                    cap = row["cap"] if row["lost"] else f"({row['cap']})"
                    print(
                        f"| {name} | {kind} | {per_length} "
                        f"| {row['runs']} | {share(row['alarms'], row['runs'])} "
                        f"| {share(row['unsafe'], row['lost'])} | {cap} "
                        f"| {row['no_cap'] / row['runs']:.2f} |",
                        flush=True,
                    )
                    if name != CLUSTERED:
                        unsafe, lost = unsafe + row["unsafe"], lost + row["lost"]
                print(
                    f"\nUnsafe over all of one question a document: {share(unsafe, lost)}; "
                    f"{time.time() - start:.0f} s\n"
                )


if __name__ == "__main__":
    main()
