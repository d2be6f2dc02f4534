"""Error rates of the words for a drop: `cliff` for a step, `gradual_decline` for a line.

    python benchmarks/suddenness.py [--sets 200] [--first-seed 0] [--json FILE]

Sets of 0/1 scores, one question per document, lengths from 200 to 60,000 tokens: uniform in the
logarithm, or log-normal about 4,000. The mean falls by a share at one place (a step, between 20 and
85% of the documents), within 8% of them, or on a straight line over all lengths: in the logarithm
of length, in rank, in length; a ramp takes 10 to 40% of the documents. Shares refer to the sets
with an alarm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contextcliff_dagster.analysis.cliff import baseline_of, find_verdict
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.contracts import Verdict

SHAPES = ("step", "within 8%", "ramp", "line in log length", "line in rank", "line in length")
WORDS = (Verdict.CLIFF, Verdict.DECLINE, Verdict.GRADUAL_DECLINE)
SETTINGS = AnalysisSettings()


def lengths_of(rng: np.random.Generator, count: int, spread: str) -> np.ndarray:
    if spread == "even":
        logs = rng.uniform(np.log(200), np.log(60_000), count)
    else:
        logs = rng.normal(np.log(4_000), 1.0, count)
    return np.sort(np.exp(logs).astype(np.int64))


def lost(rng: np.random.Generator, shape: str, lengths: np.ndarray) -> np.ndarray:
    """Return the share of the drop that is complete at each length."""
    rank = (np.arange(len(lengths)) + 0.5) / len(lengths)
    if shape == "step":
        return (rank >= rng.uniform(0.2, 0.85)).astype(float)
    if shape == "within 8%":
        return ((rank - rng.uniform(0.2, 0.8)) / 0.08).clip(0, 1)
    if shape == "ramp":
        return ((rank - rng.uniform(0.2, 0.6)) / rng.uniform(0.1, 0.4)).clip(0, 1)
    along = {"line in log length": np.log(lengths), "line in rank": rank}.get(shape, lengths)
    return (along - along[0]) / (along[-1] - along[0])


def word(seed: int, shape: str, count: int, baseline: float, drop: float, spread: str) -> str:
    rng = np.random.default_rng(seed)
    lengths = lengths_of(rng, count, spread)
    mean = baseline * (1 - drop * lost(rng, shape, lengths))
    documents = Documents(lengths, np.ones(count), (rng.random(count) < mean).astype(float), True)
    return find_verdict(documents, SETTINGS, baseline_of(documents, SETTINGS)).verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    print(f"{'n':>5} {'from':>5} {'drop':>5} lengths {'shape':20} alarms " + " ".join(WORDS))
    for count, baseline, drop in (
        (200, 0.9, 0.5), (200, 0.75, 0.5), (200, 0.9, 0.35), (200, 0.9, 0.8), (100, 0.9, 0.5),
        (500, 0.9, 0.5), (1_000, 0.75, 0.35),
    ):  # fmt: skip
        for spread in ("even", "normal"):
            for shape in SHAPES:
                seeds = range(given.first_seed, given.first_seed + given.sets)
                words = Counter(word(s, shape, count, baseline, drop, spread) for s in seeds)
                alarms = sum(words[one] for one in WORDS)
                shares = [words[one] / max(alarms, 1) for one in WORDS]
                rows.append([count, baseline, drop, spread, shape, alarms, *shares])
                print(
                    f"{count:5} {baseline:5} {drop:5} {spread:7} {shape:20} {alarms:6} "
                    + " ".join(f"{share:7.2f}" for share in shares),
                    flush=True,
                )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
