"""Error rate and power of the test of evidence position.

    python benchmarks/evidence.py [--runs 400] [--jobs 2]

Documents have log-uniform lengths of 40 to 6,000 tokens, chances that fall from .85 to .55 with
length, and uniform evidence positions. "middle": the chance is .25 lower if the evidence is in the
middle fifth; "with length": evidence is late in long documents, without an effect. Questions on one
document share a random effect of .2 (SD), or their position.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd

from contextcliff_dagster.analysis.confounds import evidence_curve
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

PLANTED = ("flat", "middle", "with length")
DESIGNS = {
    "200 documents": (200, 1, False),
    "80 documents, 3 questions each": (80, 3, False),
    "80 documents, 3 questions at one place": (80, 3, True),
}


def draw(rng: np.random.Generator, planted: str, design: str) -> pd.DataFrame:
    count, questions, one_place = DESIGNS[design]
    tokens = np.sort(np.exp(rng.uniform(np.log(40), np.log(6_000), count)).astype(np.int64))
    rank = np.arange(count)[:, None] / count
    position = rng.random((count, questions))
    if one_place:
        position = np.clip(position[:, :1] + rng.normal(0, 0.02, position.shape), 0, 1)
    if planted == "with length":
        position = 0.6 * rank + 0.4 * position
    luck = 0.2 * rng.normal(0, 1, (count, 1)) if questions > 1 else 0.0
    chance = np.clip(0.85 - 0.3 * rank + luck, 0.05, 0.95) + np.zeros_like(position)
    if planted == "middle":
        chance = chance - 0.25 * ((position >= 0.4) & (position < 0.6))
    document = np.repeat(np.arange(count), questions)
    return pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in document],
            "example_id": [f"e{i}" for i in range(len(document))],
            "length_tokens": tokens[document],
            "score": (rng.random(chance.shape) < chance).astype(np.float64).ravel(),
            "evidence_position": position.ravel(),
        }
    )


def one(seed: int, planted: str, design: str) -> tuple[bool, bool]:
    """Return whether p <= .05, and whether the middle differs most."""
    rng = np.random.default_rng((seed, PLANTED.index(planted), list(DESIGNS).index(design)))
    sample = clean_records(draw(rng, planted, design), [])
    curve = evidence_curve(sample, "evidence_position", AnalysisSettings(resamples=100))
    alarm = curve is not None and curve.p_value is not None and curve.p_value <= 0.05
    return alarm, curve is not None and curve.group == 2


def share(hits: int, runs: int) -> str:
    if not runs:
        return "none"
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    head = ("data", "planted", "p <= .05", "of these, the middle")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        for design in DESIGNS:
            for planted in PLANTED:
                run = partial(one, planted=planted, design=design)
                done = list(pool.map(run, range(1_000, 1_000 + given.runs), chunksize=10))
                alarms = [middle for alarm, middle in done if alarm]
                cells = share(len(alarms), given.runs), share(sum(alarms), len(alarms))
                print(f"| {design} | {planted} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
