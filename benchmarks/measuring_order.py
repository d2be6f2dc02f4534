"""Effect of drift during a measurement, in order of length and in blocks of every bin.

    python benchmarks/measuring_order.py [--runs 300] [--jobs 2]

A model whose chance of a right answer is .7 at every length is asked 200 questions, ten bins of 20.
Over the run its answers change: scores fall by 40% from first to last (*drift*), 25 calls in a row
are wrong (*bad spell*), or nothing happens. Printed: the share of runs with an alarm (cliff,
gradual decline, decline, dip) and with a warning of the measuring time, with 95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.cliff import baseline_of, conclude
from contextcliff_dagster.analysis.confounds import time_warnings
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.contracts import DROPS as ALARMS
from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.requests.call_plan import PlannedCall, in_blocks
from contextcliff_dagster.inference.requests.recipe import Recipe

BINS, PER_BIN, LEVEL = 10, 20, 0.7
SETTINGS = AnalysisSettings(permutations=199, resamples=100)
EVENTS = ("none", "drift", "bad spell")
ORDERS = ("by_length", "blocks")


def calls(rng: np.random.Generator) -> list[PlannedCall]:
    """Return the calls in plan order: bin after bin, in random order within a bin."""
    lengths = np.sort(np.exp(rng.normal(9.0, 1.0, BINS * PER_BIN)).astype(np.int64))
    recipe = Recipe()
    return [
        PlannedCall(
            str(index), Example(str(index), str(index), "?", ("a",), "any", {}),
            int(lengths[index]), f"b{bin:02d}", rank, 0, recipe, str,
        )
        for bin in range(BINS)
        for rank, index in enumerate(bin * PER_BIN + rng.permutation(PER_BIN))
    ]  # fmt: skip


def run(seed: int, event: str, order: str) -> tuple[bool, bool]:
    """Return whether there is an alarm, and whether there is a warning on the measuring time."""
    rng = np.random.default_rng((seed, EVENTS.index(event)))
    planned = calls(rng)
    asked = planned if order == "by_length" else in_blocks(planned, seed)
    moment = np.linspace(0.0, 1.0, len(asked))
    chance = LEVEL * (1.0 - 0.4 * moment) if event == "drift" else np.full(len(asked), LEVEL)
    if event == "bad spell":
        start = int(rng.integers(0, len(asked) - 25))
        chance[start : start + 25] = 0.0
    records = pd.DataFrame(
        {
            "document_id": [call.call_key for call in asked],
            "length_tokens": [call.length_tokens for call in asked],
            "bin": [call.bin for call in asked],
            "score": (rng.random(len(asked)) < chance).astype(float),
            "finished_at": pd.Timestamp("2026-01-01", tz="UTC")
            + pd.to_timedelta(np.arange(len(asked)), unit="s"),
        }
    )
    sample = clean_records(records, [])
    documents = sample.documents()
    conclusion = conclude(documents, SETTINGS, baseline_of(documents, SETTINGS))
    return str(conclusion.finding.verdict) in ALARMS, bool(time_warnings(sample, SETTINGS))


def share(hits: list[bool]) -> str:
    """Return a share with its 95% limits (Wilson)."""
    z2, n = chi_square_quantile(0.95), len(hits)
    p = sum(hits) / n
    middle, half = p + z2 / (2 * n), np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2)))
    low, high = ((middle + side) / (1 + z2 / n) for side in (-half, half))
    return f"{p:.3f} [{max(low, 0):.3f}, {min(high, 1):.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    print("| over the run | order | alarms | warnings |\n|---|---|---|---|")
    with ProcessPoolExecutor(given.jobs) as pool:
        for event in EVENTS:
            for order in ORDERS:
                work = partial(run, event=event, order=order)
                alarms, warnings = zip(*pool.map(work, range(given.runs), chunksize=5), strict=True)
                print(f"| {event} | {order} | {share(alarms)} | {share(warnings)} |", flush=True)


if __name__ == "__main__":
    main()
