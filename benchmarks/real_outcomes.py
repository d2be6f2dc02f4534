"""Error rates on real answers: many models' 0/1 outcomes by context length, resampled.

    python benchmarks/real_outcomes.py [--draws 3] [--per-length 20] [--jobs 2] [--json FILE]

Needs CONTEXTCLIFF_REAL_DATA, a folder with `babilong_per_sample_outcomes.jsonl.gz`: outcomes of one
model, prompt and task at nominal lengths of 1k tokens and more (0k, the bare task, is left out).
Series of at least four lengths with --per-length outcomes or more each. A data set draws that many
of each length without replacement; lengths are the nominal ones, so that answers of one length
share it.

Shuffled: the same outcomes permuted over the lengths; any alarm is false (data sets with verdict
`floor` are left out). Unshuffled: a cap is unsafe at or beyond the first length at which the mean
of all outcomes of the series (100 to 1,000 per length) has lost the tolerance of the baseline, the
lengths that hold the first 15% of the data set. Shares have 95% limits (Wilson); shares over series
resample the series, because draws of one series are dependent.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from contextcliff_dagster.analysis.cliff import baseline_of, cap_of, conclude
from contextcliff_dagster.analysis.design.error_rates import Rate
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.statistics.falling_curve import merge_cells
from contextcliff_dagster.contracts import DROPS as ALARMS

SETTINGS = AnalysisSettings(permutations=199, resamples=100)
FILE = "babilong_per_sample_outcomes.jsonl.gz"
LEAST_LENGTHS = 4
UNJUDGED = ("floor", "insufficient_data")
TOLERANCES = (0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Series:
    """All 0/1 outcomes of one model, prompt and task, by ascending nominal length in tokens."""

    tokens: tuple[int, ...]
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one data set. ``caps``: tolerance -> (cap, first lossy length) in tokens or None;
    ``reach``: share of the lengths before a loss, or of all, that the cap covers; ``numbers``:
    tolerance -> whether there is a cap or an end of the baseline."""

    series: int
    false_alarm: bool
    shuffled: str
    verdict: str
    baseline: float
    caps: dict[float, tuple[int | None, int | None]]
    reach: dict[float, float]
    numbers: dict[float, bool]


def read_series(path: Path, per_length: int) -> list[Series]:
    """Return the series that are long enough, in file order."""
    cells: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["target_tokens"] > 0 and len(row["outcomes"]) >= per_length:
                key = (row["model"], row["prompt"], row["task"])
                cells[key][row["target_tokens"]] = row["outcomes"]
    kept = [sorted(of.items()) for of in cells.values() if len(of) >= LEAST_LENGTHS]
    return [Series(*zip(*of, strict=True)) for of in kept]


def draw(series: Series, per_length: int, rng: np.random.Generator) -> Documents:
    scores = [
        rng.permutation(np.frombuffer(of.encode(), np.uint8) == ord("1"))[:per_length]
        for of in series.outcomes
    ]
    lengths = np.repeat(np.array(series.tokens, np.int64), per_length)
    flat = np.concatenate(scores).astype(np.float64)
    return Documents(lengths, np.ones(len(flat)), flat, True)


def first_loss(series: Series, documents: Documents, tolerance: float) -> int | None:
    """Return the first length at which the full series has lost ``tolerance`` of its baseline."""
    cells = merge_cells(documents, baseline_share=SETTINGS.baseline_share)
    mean = [of.count("1") / len(of) for of in series.outcomes]
    baseline = float(np.mean(mean[: cells.baseline_cells]))
    for tokens, level in zip(series.tokens, mean, strict=True):
        if level <= (1.0 - tolerance) * baseline + 1e-12:
            return tokens
    return None


def one(job: tuple[int, int], series: list[Series], per_length: int) -> Found:
    number, repeat = job
    rng = np.random.default_rng((number, repeat))
    settings = replace(SETTINGS, seed=repeat)
    documents = draw(series[number], per_length, rng)
    baseline = baseline_of(documents, settings)
    conclusion = conclude(documents, settings, baseline)
    mixed = replace(documents, s=rng.permutation(documents.s))
    shuffled = conclude(mixed, settings, baseline_of(mixed, settings)).finding.verdict
    of = {t: cap_of(conclusion.finding, replace(settings, tolerance=t)) for t in TOLERANCES}
    caps = {t: (cap.tokens, first_loss(series[number], documents, t)) for t, cap in of.items()}
    return Found(
        number,
        shuffled in ALARMS,
        shuffled.value,
        conclusion.finding.verdict.value,
        baseline,
        caps,
        {tolerance: reach(series[number], *both) for tolerance, both in caps.items()},
        {t: (cap.tokens or cap.baseline_tokens) is not None for t, cap in of.items()},
    )


def reach(series: Series, cap: int | None, loss: int | None) -> float:
    safe = [tokens for tokens in series.tokens if loss is None or tokens < loss]
    return sum(tokens <= (cap or 0) for tokens in safe) / max(len(safe), 1)


def shown(hits: list[bool]) -> str:
    rate = Rate.of(hits)
    if rate.value is None:
        return ""
    return f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}] of {rate.runs}"


def over_series(hit: dict[int, list[bool]]) -> str:
    """Return 95% limits of a share, with the data sets of one series as one unit."""
    units = [(sum(of), len(of)) for of in hit.values() if of]
    if not units:
        return ""
    hits, runs = (np.array(side, np.float64) for side in zip(*units, strict=True))
    picked = np.random.default_rng(0).integers(0, len(units), size=(2_000, len(units)))
    low, high = np.quantile(hits[picked].sum(axis=1) / runs[picked].sum(axis=1), (0.025, 0.975))
    return f"[{low:.3f}, {high:.3f}]"


def caps_line(outcomes: list[Found], tolerance: float) -> dict[str, Any]:
    """Return a line on unsafe caps and on the share of safe lengths that caps reach."""
    by_series: dict[int, list[bool]] = defaultdict(list)
    without = []
    for of in outcomes:
        cap, loss = of.caps[tolerance]
        without.append(cap is None)
        if loss is not None:
            by_series[of.series].append(cap is not None and cap >= loss)
    unsafe = [hit for of in by_series.values() for hit in of]
    return {
        "tolerance": tolerance,
        "unsafe": shown(unsafe),
        "over series": over_series(by_series),
        "reach": f"{np.mean([of.reach[tolerance] for of in outcomes]):.2f}",
        "no cap": shown(without),
        "no number": shown([not of.numbers[tolerance] for of in outcomes]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=3, help="data sets of each series")
    parser.add_argument("--per-length", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    folder = os.environ.get("CONTEXTCLIFF_REAL_DATA")
    if not folder or not (Path(folder) / FILE).is_file():
        raise SystemExit(f"Set CONTEXTCLIFF_REAL_DATA to a folder that has {FILE}.")
    series = read_series(Path(folder) / FILE, given.per_length)
    jobs = [(number, repeat) for repeat in range(given.draws) for number in range(len(series))]
    start = time.time()
    work = partial(one, series=series, per_length=given.per_length)
    with ProcessPoolExecutor(given.jobs) as pool:
        outcomes = list(pool.map(work, jobs, chunksize=10))
    groups = {
        "all": outcomes,
        "baseline of .30 and more": [of for of in outcomes if of.baseline >= 0.3],
    }
    print(
        f"{len(series)} series, {given.draws} data sets each, n = {given.per_length} a length, "
        f"{time.time() - start:.0f} s\n"
    )
    rows: list[dict[str, Any]] = []
    for name, of_group in groups.items():
        alarms = [of.false_alarm for of in of_group if of.shuffled not in UNJUDGED]
        rows += [{"group": name, **caps_line(of_group, t)} for t in TOLERANCES]
        print(f"{name}: false alarms, lengths shuffled: {shown(alarms)}")
        verdicts = Counter(of.verdict for of in of_group).most_common()
        print(f"{name}: verdicts: {', '.join(f'{v} {n}' for v, n in verdicts)}\n")
    print(
        "| series | tolerance | unsafe caps, where it is lost | limits over series | cap / safe "
        "lengths | no cap | nor a baseline cap |\n|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row['group']} | {row['tolerance']:.0%} | {row['unsafe']} | {row['over series']} "
            f"| {row['reach']} | {row['no cap']} | {row['no number']} |"
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
