"""Check that shuffling the lengths of a finished study's records gives no cliff.

    python benchmarks/shuffled_lengths.py [--study reference] [--shuffles 200] [--store DIR]
                                          [--seed N] [--jobs 2]

Measures a study of the two reference models (with --store: reuses what is measured there), reads
its evaluation records and permutes the documents' lengths at random. Length then explains nothing,
so a verdict that reports a loss is a false alarm, which the method limits to a probability of 5%.
As a control, the unpermuted records must show a loss.

Exits with 1 if a model has more alarms than 999 of 1,000 runs of this script would give at a rate
of 5% (binomial quantile), or if the control fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

# One BLAS thread per process: the matrices are small, and spinning threads would be billed as CPU.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import pandas as pd
from scipy.stats import binom, binomtest

from contextcliff_dagster.analysis.profile import AnalysisSettings, ProfileContext, profile_model
from contextcliff_dagster.contracts import DROPS as ALARMS

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("reference-short", "reference-long")
PROMISED, SURPRISE = 0.05, 0.001
# The bins' own intervals are not looked at, nor what does not decide the verdict.
SETTINGS = AnalysisSettings(resamples=100, second_opinions=False)


def measure(study: str, store: Path, seed: str | None) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CONTEXTCLIFF_", "DAGSTER_"))}
    command = [sys.executable, "-m", "contextcliff_dagster.cli", "profile", study]
    options = ["--store", str(store), "--yes", *(("--seed", seed) if seed else ())]
    subprocess.run([*command, *options], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)


def records_of(study: str, store: Path, model: str, seed: str | None) -> pd.DataFrame:
    """Return all evaluation records of ``model``."""
    name = f"{study}-seed-{seed}" if seed else study
    paths = sorted((store / name / "eval_records").rglob("*.parquet"))
    records = pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)
    return records[records["model"] == model].reset_index(drop=True)


def verdict_of(records: pd.DataFrame) -> str:
    """Return the verdict over deciles of the lengths."""
    context = ProfileContext("shuffled", window_tokens=8_192)
    verdict = profile_model(records, [], SETTINGS, context).cliffs.verdict
    return str(verdict)


def shuffled(seed: int, records: pd.DataFrame) -> str:
    """Return the verdict after the documents' lengths are permuted."""
    rng = np.random.default_rng(seed)
    lengths = records.groupby("document_id", sort=True)["length_tokens"].first()
    lengths = pd.Series(rng.permutation(lengths.to_numpy()), index=lengths.index)
    mixed = records.drop(columns="bin")
    return verdict_of(mixed.assign(length_tokens=mixed["document_id"].map(lengths)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--study", default="reference")
    parser.add_argument("--shuffles", type=int, default=200, help="of each model's records")
    parser.add_argument("--store", type=Path, help="where the study is, or is to be, measured")
    parser.add_argument("--seed", help="draw another sample")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    most = int(binom.ppf(1.0 - SURPRISE, given.shuffles, PROMISED))
    failed = False
    with (
        tempfile.TemporaryDirectory(prefix="contextcliff-shuffled-") as folder,
        ProcessPoolExecutor(given.jobs) as pool,
    ):
        store = given.store or Path(folder)
        measure(given.study, store, given.seed)
        for model in MODELS:
            records = records_of(given.study, store, model, given.seed)
            as_it_is = verdict_of(records)
            work = partial(shuffled, records=records)
            verdicts = Counter(pool.map(work, range(given.shuffles), chunksize=5))
            alarms = sum(verdicts[verdict] for verdict in ALARMS)
            low, high = binomtest(alarms, given.shuffles).proportion_ci(method="exact")
            print(
                f"{model}, {len(records)} records, mean score {records['score'].mean():.2f}: as "
                f"measured {as_it_is}; lengths shuffled: {alarms} false alarms in "
                f"{given.shuffles} ({alarms / given.shuffles:.3f} [{low:.3f}, {high:.3f}], at most "
                f"{most} allowed): {', '.join(f'{v} {n}' for v, n in verdicts.most_common())}",
                flush=True,
            )
            failed |= alarms > most or as_it_is not in ALARMS or verdicts["insufficient_data"] > 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
