"""Caps of many samples of the reference models' own answers, against their known truth.

    python benchmarks/reference_pool.py [--documents 5000] [--samples 200] [--store DIR] [--jobs 2]

Both models answer one question on each of `--documents` fresh ledgers once (about 20 minutes on two
idle cores; an interrupted run resumes from its store). Samples of 20 and 50 per bin are then drawn
from those answers, as in a study, and every cap is compared with L70 of the model's card: the
length at which 30% of the plateau is lost; the half-drop's interval with the answers' own place.

Goals, by model: at 20 a bin at most 5% of the caps beyond L70 and 90% within [.5, 1] of it; at 50 a
bin 90% within [.7, 1]. Exits with 1 if one is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from accept import share

from contextcliff_dagster.analysis.cliff import baseline_of, conclude
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents

ROOT = Path(__file__).resolve().parents[1]
SHORT, LONG = "reference-short", "reference-long"
LEVEL = 1
BINS = 10
SETTINGS = AnalysisSettings(permutations=199, resamples=100)
MOST_BEYOND, LEAST_WITHIN = 0.05, 0.90
STUDY = """\
name: pool
corpus: {{kind: reference, task: lookup, documents: {documents}, seed: 77003}}
tokenizer: reference
bins: {{kind: quantile, count: 10}}
sampling: {{samples_per_bin: {documents}, seed: 0}}
prompt: {{mode: chat, max_output_tokens: 12}}
models: [reference-short, reference-long]
scoring: {{primary: em}}
"""


def truth() -> dict[str, float]:
    """Return L70 from both models' cards."""
    from contextcliff_dagster.reference.card import load_card

    return {name: load_card(name).level(LEVEL).l70_tokens for name in (SHORT, LONG)}


def answer_all(documents: int, store: Path) -> None:
    """Have both models answer the examples of the pool that they have not answered yet."""
    store.mkdir(parents=True, exist_ok=True)
    study = store / "pool.yaml"
    study.write_text(STUDY.format(documents=documents))
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("CONTEXTCLIFF_", "DAGSTER_"))}
    command = (sys.executable, "-m", "contextcliff_dagster.cli", "profile", str(study))
    subprocess.run([*command, "--store", str(store), "--yes"], cwd=ROOT, env=keep, check=True)


def pool_of(store: Path, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths (ascending) and scores of all answers of ``model``."""
    import pyarrow.parquet as pq

    files = sorted(store.glob(f"pool/eval_records/campaign=*/model={model}/bin=*/*.parquet"))
    tables = [pq.ParquetFile(path).read(columns=["length_tokens", "score"]) for path in files]
    lengths = np.concatenate([table["length_tokens"].to_numpy() for table in tables])
    scores = np.concatenate([table["score"].to_numpy() for table in tables]).astype(float)
    order = np.argsort(lengths, kind="stable")
    return lengths[order], scores[order]


def half_drop_of(lengths: np.ndarray, scores: np.ndarray) -> float:
    """Return the length at which the pool's moving mean (60) first falls to half the plateau."""
    smooth = np.convolve(scores, np.ones(60) / 60, mode="valid")
    plateau = scores[: int(0.15 * len(scores))].mean()
    middle = 0.5 * (plateau + scores[-int(0.04 * len(scores)) :].mean())
    return float(lengths[30 + int(np.argmax(smooth <= middle))])


def one(
    seed: int, pool: tuple[np.ndarray, np.ndarray], per_bin: int, half: float
) -> tuple[int, bool]:
    """Return one sample's cap (0: none), and whether the half-drop's interval covers its place."""
    lengths, scores = pool
    rng = np.random.default_rng((seed, per_bin))
    parts = np.array_split(np.arange(len(lengths)), BINS)
    drawn = np.sort(np.concatenate([rng.choice(part, per_bin, replace=False) for part in parts]))
    documents = Documents(lengths[drawn], np.ones(len(drawn)), scores[drawn], True)
    conclusion = conclude(documents, SETTINGS, baseline_of(documents, SETTINGS))
    loss = conclusion.finding.cliff
    held = loss is not None and loss.location.low <= half <= loss.location.high
    return conclusion.cap.tokens or 0, held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=5_000)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--store", type=Path, help="keep the answers here")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    l70, missed = truth(), False
    with (
        tempfile.TemporaryDirectory(prefix="contextcliff-pool-") as folder,
        ProcessPoolExecutor(given.jobs) as workers,
    ):
        store = (given.store or Path(folder)).resolve()
        answer_all(given.documents, store)
        print(f"{given.samples} samples of each model's answers; level {LEVEL}\n")
        print(
            "| model | answers | L70 | a bin | beyond L70 | within [.5, 1] | within [.7, 1] "
            "| median cap / L70 | half-drop held |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for model in (SHORT, LONG):
            pool = pool_of(store, model)
            half = half_drop_of(*pool)
            for per_bin in (20, 50):
                work = partial(one, pool=pool, per_bin=per_bin, half=half)
                results = list(workers.map(work, range(given.samples), chunksize=10))
                ratio = np.array([cap for cap, _ in results]) / l70[model]
                beyond = int((ratio > 1).sum())
                least = 0.5 if per_bin == 20 else 0.7
                within = {at: int(((ratio >= at) & (ratio <= 1)).sum()) for at in (0.5, 0.7)}
                runs = len(results)
                print(
                    f"| {model} | {len(pool[0]):,} | {l70[model]:.0f} | {per_bin} "
                    f"| {share(beyond, runs)} | {share(within[0.5], runs)} "
                    f"| {share(within[0.7], runs)} | {np.median(ratio):.2f} "
                    f"| {share(sum(held for _, held in results), runs)} |",
                    flush=True,
                )
                if per_bin == 20:
                    missed |= beyond > MOST_BEYOND * runs
                missed |= within[least] < LEAST_WITHIN * runs
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
