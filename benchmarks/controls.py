"""Error rates of telling a loss over length from harder questions by the evidence-only control.

    python benchmarks/controls.py [--runs 200] [--jobs 2]

300 documents of log-uniform lengths of 40 to 5,900 tokens with one 0/1 question each, answered with
the evidence alone with a chance of .80 to .95. From 30-75% of the documents on, planted:

- "harder": questions lose 40 to 60%, with the evidence alone as well;
- "length": reading loses 40 to 60%, the evidence alone nothing;
- "both": reading loses 40 to 60% and questions 10 to 30%;
- "no loss".

"called": what the oracle says of the loss. "error": median of |drop at equal difficulty - planted
drop of reading| and of the difference itself; "held": share of its 95% intervals that hold that.
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

from contextcliff_dagster.analysis.cliff import baseline_of, drop_window, find_verdict
from contextcliff_dagster.analysis.control_tests import ControlAnswers, judge_controls
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

PLANTED = ("harder", "length", "both", "no loss")
COUNT = 300


def draw(rng: np.random.Generator, planted: str) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Draw records, those with the evidence alone, and the drop that reading causes."""
    tokens = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), COUNT)).astype(np.int64))
    far = np.arange(COUNT) >= COUNT * rng.uniform(0.30, 0.75)
    harder = {"harder": rng.uniform(0.40, 0.60), "both": rng.uniform(0.10, 0.30)}.get(planted, 0.0)
    reading = float(rng.uniform(0.40, 0.60)) if planted in ("length", "both") else 0.0
    alone = rng.uniform(0.80, 0.95) * (1 - harder * far)

    def records(chance: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "document_id": [f"d{i}" for i in range(COUNT)],
                "example_id": [f"e{i}" for i in range(COUNT)],
                "length_tokens": tokens,
                "score": (rng.random(COUNT) < chance).astype(np.float64),
            }
        )

    return records(alone * (1 - reading * far)), records(alone), reading


def judge(seed: int, planted: str) -> tuple[str, bool, float, bool]:
    """Judge one data set: the call, whether a loss was found, the drop's error and coverage."""
    rng = np.random.default_rng((seed, PLANTED.index(planted)))
    measured, alone, reading = draw(rng, planted)
    settings = AnalysisSettings()
    sample = clean_records(measured, [])
    documents = sample.documents()
    finding = find_verdict(documents, settings, baseline_of(documents, settings))
    beyond = drop_window(finding, sample.examples["length_tokens"].to_numpy(np.int64))
    oracle = ControlAnswers("oracle", alone, frozenset(alone["example_id"]))
    (result,) = judge_controls([oracle], sample, beyond, finding, settings)
    if result.drop is None or result.drop_ci_low is None or result.drop_ci_high is None:
        return result.identified, finding.visible, float("nan"), False
    held = result.drop_ci_low <= reading <= result.drop_ci_high
    return result.identified, finding.visible, result.drop - reading, held


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    head = ("planted", "loss found", "called yes", "called no", "error", "held")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        for planted in PLANTED:
            one = partial(judge, planted=planted)
            done = list(pool.map(one, range(1_000, 1_000 + given.runs), chunksize=10))
            called = [answer for answer, _, _, _ in done]
            errors = np.array([error for _, _, error, _ in done])
            known = errors[~np.isnan(errors)]
            cells = [
                share(sum(seen for _, seen, _, _ in done), given.runs),
                share(called.count("yes"), given.runs),
                share(called.count("no"), given.runs),
                f"{np.median(np.abs(known)):.3f}, {np.median(known):.3f}",
                share(sum(held for *_, held in done), len(known)),
            ]
            print(f"| {planted} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
