"""Error rates of caps at 10, 20 and 30% on drops of 1.1 to 3 times the tolerance.

    python benchmarks/tolerances.py [--sets 400] [--first-seed 0] [--json FILE]

Each data set has 200 answers of 0 or 1, one question per document, log-uniform lengths from 200 to
60,000 tokens, and a mean of .9 before the drop. A single drop is at 20 to 85% of the documents. Of
two stages, the first is at 20 to 60%, and the second, to 30% of the baseline, at least a tenth of
the documents later. Unsafe: the cap reaches the first length whose mean has lost the
tolerance of the baseline's, with Wilson's limits. Covered: the median of the share of the
documents before it (flat: of all).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from accept import share

from contextcliff_dagster.analysis.cliff import certified_cap
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.analysis.statistics.falling_curve import fit_falling_curve

COUNT, BASELINE, CONFIDENCE, SECOND = 200, 0.9, 0.95, 0.7
FIRST = int(0.15 * COUNT)


def drawn(seed: int, first: float, two: bool) -> tuple[Documents, np.ndarray]:
    """Draw a sample; return it with the true mean at each of its lengths."""
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.exp(rng.uniform(np.log(200), np.log(60_000), COUNT)).astype(np.int64))
    rank = (np.arange(COUNT) + 0.5) / COUNT
    place = rng.uniform(0.2, 0.6 if two else 0.85)
    mean = np.where(rank < place, BASELINE, BASELINE * (1 - first))
    if two:
        mean[rank >= rng.uniform(place + 0.1, 0.9)] = BASELINE * (1 - SECOND)
    scores = (rng.random(COUNT) < mean).astype(float)
    return Documents(lengths, np.ones(COUNT), scores, True), mean


def judged(seed: int, tolerance: float, times: float, two: bool) -> tuple[bool, float]:
    """Return whether the cap is unsafe, and the share of safe documents that it covers."""
    documents, mean = drawn(seed, times * tolerance, two)
    cap = certified_cap(fit_falling_curve(documents, 0.15), tolerance, CONFIDENCE).tokens or 0
    lost = np.flatnonzero(mean <= (1 - tolerance) * mean[:FIRST].mean() + 1e-12)
    safe = int(lost[0]) if len(lost) else COUNT
    below = int(np.searchsorted(documents.length_tokens, cap, side="right"))
    return bool(len(lost)) and cap >= documents.length_tokens[safe], below / safe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    print("| drop | " + " | ".join(f"{t:.0%}: unsafe | covered" for t in (0.1, 0.2, 0.3)) + " |")
    print("|---" * 7 + "|")
    for two in (False, True):
        for times in (1.1, 1.25, 1.5, 2.0, 3.0) if two else (0.0, 1.1, 1.25, 1.5, 2.0, 3.0):
            name = f"{times:g} x the tolerance" if times else "flat"
            cells = []
            for tolerance in (0.1, 0.2, 0.3):
                if two and times * tolerance >= SECOND:
                    cells += ["", ""]
                    continue
                seeds = range(given.first_seed, given.first_seed + given.sets)
                found = [judged(seed, tolerance, times, two) for seed in seeds]
                unsafe = share(sum(hit for hit, _ in found), len(found)) if times else ""
                covered = float(np.median([of for _, of in found]))
                cells += [str(unsafe), f"{covered:.2f}"]
                rows.append([name, two, tolerance, sum(hit for hit, _ in found), covered])
            more = f", then {SECOND:.0%}" if two else ""
            print(f"| {name}{more} | " + " | ".join(cells) + " |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
