"""Error rates of verdict, cap and location on planted curves, as reported in docs/calibration.md.

    python benchmarks/accept.py [--runs 1500] [--others 300] [--only step,dip] [--seed 0] [--jobs 2]

The classes are those of planted.py. Unless stated otherwise, curves and designs are random:
baseline .45 to .75, a drop of 35 to 80% anywhere in 20 to 85% of the samples, one to eight
questions per document with a correlation of .02 to .30, graded scores, n per bin from a pool of
2,000. `--runs` data sets per class have n = 20 per bin and tolerance 30%; `--others` data sets have
n = 10, 50, 100 and tolerances of 10 and 20%. A cap is unsafe beyond the first length at which the
true mean has lost the tolerance of the baseline, which is the true mean of the shortest 15%. For
classes that decline from the first length, unsafe caps relative to the level there are printed
below the table. Shares have 95% limits (Wilson); lengths are compared as shares of the samples.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from planted import CLASSES, draw

from contextcliff_dagster.analysis.cliff import baseline_of, conclude, drops_that_recover
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.analysis.statistics.intervals import chi_square_quantile
from contextcliff_dagster.contracts import DROPS as ALARMS

SETTINGS = AnalysisSettings(permutations=199, resamples=100)
LEFT_OUT = ("step .9 by 30%", "dip")
"""Classes left out of the totals: a drop by exactly the tolerance, and drops that recover."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one data set; lengths are shares of the samples, None if missing."""

    alarm: bool
    cap: float | None
    truth: float | None
    from_first: float | None
    log_error: float | None
    held: bool | None
    log_width: float | None
    cap_any: float | None = None


def one(seed: int, name: str, per_bin: int, tolerance: float) -> Outcome:
    rng = np.random.default_rng((seed, per_bin, CLASSES.index(name)))
    drawn, curve = draw(name, per_bin, rng)
    settings = replace(SETTINGS, seed=seed, tolerance=tolerance)
    baseline = baseline_of(drawn.documents, settings)
    conclusion = conclude(drawn.documents, settings, baseline)
    loss, cap = conclusion.finding.cliff, conclusion.cap.tokens
    error = held = width = None
    if loss is not None and curve.shape == "step":
        place = float(np.exp(np.interp(curve.place, drawn.share, drawn.log_length)))
        error = abs(float(np.log(loss.location.value / place)))
        held = bool(loss.location.low - 1 <= place <= loss.location.high + 1)
        width = float(np.log(loss.location.high / max(loss.location.low, 1.0)))
    recovery = drops_that_recover(conclusion, settings)
    cap_any = None if recovery is None else recovery.cap_tokens
    return Outcome(
        conclusion.finding.verdict.value in ALARMS,
        None if cap is None else drawn.share_up_to(cap),
        curve.first_loss(tolerance, drawn.share, drawn.log_length),
        curve.first_loss(tolerance, drawn.share, drawn.log_length, baseline_share=0.0),
        error,
        held,
        width,
        None if cap_any is None else drawn.share_up_to(cap_any),
    )


def limits(hits: int, runs: int) -> tuple[float, float]:
    """Return the 95% limits (Wilson) of a share."""
    z2 = chi_square_quantile(0.95)
    p = hits / runs
    middle = (p + z2 / (2 * runs)) / (1 + z2 / runs)
    half = np.sqrt(z2 * (p * (1 - p) / runs + z2 / (4 * runs**2))) / (1 + z2 / runs)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def share(hits: int, runs: int) -> str:
    if not runs:
        return ""
    low, high = limits(hits, runs)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def median(values: Sequence[float]) -> str:
    return f"{np.median(values):.2f}" if values else ""


def beyond(cap: float | None, truth: float | None) -> bool:
    return cap is not None and truth is not None and cap > truth + 1e-9


def summarise(name: str, per_bin: int, tolerance: float, outcomes: list[Outcome]) -> dict[str, Any]:
    lost = [o for o in outcomes if o.truth is not None]
    placed = [o for o in outcomes if o.held is not None]
    caps = [(o.cap or 0.0) / o.truth for o in lost if o.truth]
    caps_any = [(o.cap_any or 0.0) / o.truth for o in lost if o.truth]
    return {
        "class": name,
        "per_bin": per_bin,
        "tolerance": tolerance,
        "runs": len(outcomes),
        "alarms": sum(o.alarm for o in outcomes),
        "lost": len(lost),
        "unsafe": sum(beyond(o.cap, o.truth) for o in outcomes),
        "unsafe_from_first": sum(beyond(o.cap, o.from_first) for o in outcomes),
        "lost_from_first": sum(o.from_first is not None for o in outcomes),
        "cap": median(caps if lost else [o.cap or 0.0 for o in outcomes]),
        "unsafe_any": sum(beyond(o.cap_any, o.truth) for o in outcomes),
        "cap_any": median(caps_any if lost else [o.cap_any or 0.0 for o in outcomes]),
        "no_cap": sum(o.cap is None for o in outcomes),
        "placed": len(placed),
        "held": sum(bool(o.held) for o in placed),
        "log_error": median([o.log_error for o in placed if o.log_error is not None]),
        "log_width": median([o.log_width for o in placed if o.log_width is not None]),
    }


def line(row: dict[str, Any]) -> str:
    cap, cap_any = (row[of] if row["lost"] else f"({row[of]})" for of in ("cap", "cap_any"))
    return (
        f"| {row['class']} | {row['runs']} | {share(row['alarms'], row['runs'])} "
        f"| {share(row['unsafe'], row['lost'])} | {cap} "
        f"| {row['no_cap'] / row['runs']:.2f} | {row['log_error']} "
        f"| {share(row['held'], row['placed'])} | {row['log_width']} "
        f"| {share(row['unsafe_any'], row['lost'])} | {cap_any} |"
    )


HEAD = (
    "| class | data sets | alarms | unsafe caps | cap / truth (flat: of the range) | no cap "
    "| error of the place, log | interval holds it | its width, log "
    "| drops may recover: unsafe caps | cap / truth |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1_500, help="a class at n = 20")
    parser.add_argument("--others", type=int, default=300, help="a class elsewhere")
    parser.add_argument("--only", default="", help="beginnings of class names, by comma")
    parser.add_argument("--seed", type=int, default=0, help="of the first data set of a class")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wanted = [name for name in CLASSES if name.startswith(tuple(given.only.split(",")))]
    designs = [(20, 0.3, given.runs)]
    designs += [(n, 0.3, given.others) for n in (10, 50, 100)]
    designs += [(20, tolerance, given.others) for tolerance in (0.1, 0.2)]
    rows, start = [], time.time()
    with ProcessPoolExecutor(given.jobs) as pool:
        for per_bin, tolerance, runs in designs:
            if not runs:
                continue
            print(f"\nn = {per_bin} a bin, tolerance {tolerance:.0%}\n\n{HEAD}", flush=True)
            of_design = []
            for name in wanted:
                work = partial(one, name=name, per_bin=per_bin, tolerance=tolerance)
                outcomes = list(pool.map(work, range(given.seed, given.seed + runs), chunksize=10))
                of_design.append(summarise(name, per_bin, tolerance, outcomes))
                print(line(of_design[-1]), flush=True)
            for row in of_design:
                if row["class"] == "decline from the start":
                    of_first = share(row["unsafe_from_first"], row["lost_from_first"])
                    print(f"\n{row['class']}, counted from the first length: unsafe {of_first}")
            falling = [row for row in of_design if not row["class"].startswith(LEFT_OUT)]
            unsafe = sum(row["unsafe"] for row in falling)
            lost = sum(row["lost"] for row in falling)
            of_all, took = share(unsafe, lost), f"{time.time() - start:.0f} s so far"
            print(f"\nUnsafe caps over all falling curves: {of_all}; {took}")
            rows += of_design
            if given.json:
                given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
