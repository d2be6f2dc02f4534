"""Error rates of repeated looks: caps at 5, 10, 20 and 50 examples per bin, keeping the longest.

    python benchmarks/looks.py [--runs 200] [--jobs 2] [--json FILE]

The classes of planted.py with a drop beyond the tolerance, without dips and the drop by exactly the
tolerance, and the flat ones. A data set has 50 examples a bin; the first 5, 10 and 20 of every
tenth, in an order by lot, are what the earlier looks see. Printed: unsafe caps where the
longest is kept and where the last is, with the rule of `cliff.looks` and without; the median last
cap as a share of the truth (flat: of the range). 95% limits (Wilson).
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from accept import share
from planted import CLASSES, draw

from contextcliff_dagster.analysis.cliff import Finding, cap_after_looks
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.statistics.falling_curve import fit_falling_curve
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Look

SETTINGS = AnalysisSettings()
LOOKS = (5, 10, 20, 50)
Caps = list[float]


def one(seed: int, name: str) -> tuple[float | None, Caps, Caps]:
    """Return where the tolerance is lost, and each look's cap with and without the rule."""
    rng = np.random.default_rng((seed, 79, CLASSES.index(name)))
    drawn, curve = draw(name, LOOKS[-1], rng)
    whole = drawn.documents
    count = len(whole.n)
    tenth, turn = np.arange(count) * 10 // count, np.empty(count)
    for part in range(10):
        inside = np.flatnonzero(tenth == part)
        turn[inside] = rng.permutation(len(inside)) / len(inside)
    looks: list[Look] = []
    kept: tuple[Caps, Caps] = [], []
    for per_bin in LOOKS:
        seen = turn < per_bin / LOOKS[-1]
        parts = (of[seen] for of in (whole.length_tokens, whole.n, whole.s))
        fitted = fit_falling_curve(Documents(*parts, whole.binary), SETTINGS.baseline_share)
        finding = Finding(Verdict.STABLE, curve=fitted if fitted.beyond_baseline else None)
        caps = [cap_after_looks(finding, SETTINGS, of).tokens for of in (looks, [])]
        for cap, of in zip(caps, kept, strict=True):
            of.append(0.0 if cap is None else drawn.share_up_to(cap))
        looks.append(Look(per_bin, int(seen.sum()), caps[0]))
    return curve.first_loss(SETTINGS.tolerance, drawn.share, drawn.log_length), *kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    left_out = ("dip", "step .9 by 30%", "mild")
    names = [name for name in CLASSES if not name.startswith(left_out)]
    total = dict.fromkeys(("longest", "last", "plain longest", "plain last", "lost"), 0)
    rows = []
    heads = ("longest", "last", "last cap", "no rule: longest", "last", "last cap")
    print(f"| class | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    with ProcessPoolExecutor(given.jobs) as pool:
        for name in names:
            outcomes = list(pool.map(partial(one, name=name), range(given.runs), chunksize=5))
            cells: list[str] = []
            for of, prefix in ((1, ""), (2, "plain ")):
                lost = [o for o in outcomes if o[0] is not None]
                longest = sum(max(o[of]) > o[0] + 1e-9 for o in lost)
                last = sum(o[of][-1] > o[0] + 1e-9 for o in lost)
                caps = [o[of][-1] / (o[0] or 1.0) for o in outcomes]
                cells += [share(longest, len(lost)), share(last, len(lost))]
                cells.append(f"{np.median(caps):.2f}")
                total[prefix + "longest"] += longest
                total[prefix + "last"] += last
            total["lost"] += len(lost)
            rows.append([name, *cells])
            print(f"| {' | '.join(rows[-1])} |", flush=True)
    print({key: share(total[key], total["lost"]) for key in total if key != "lost"})
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
