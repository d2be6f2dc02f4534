"""False-alarm rate among many models, as reported in docs/calibration.md.

    python benchmarks/many_models.py [--sets 200] [--models 50] [--jobs 2]
    python benchmarks/many_models.py --sets 0 --models 50      # the report's cost alone

A set is `--models` models whose mean score is the same at every length, .40 to .95, with 0/1 scores
of 200 documents each (20 in each of ten bins). An alarm is a verdict cliff,
gradual_decline, decline or dip.

Then what the report of one set costs: seconds and CPU of writing all pages, this process's peak of
memory, the largest picture, and what lies on the disk.
"""

from __future__ import annotations

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from accept import ALARMS, SETTINGS, share
from PIL import Image

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.cliff import baseline_of, conclude
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import Documents
from contextcliff_dagster.reporting.report_files import write_report


def alarms(seed: int, models: int) -> int:
    """Count the models of a set that raise an alarm."""
    found = 0
    for model in range(models):
        rng = np.random.default_rng((seed, model))
        lengths = np.sort(np.exp(rng.normal(9.0, 1.0, 200)).astype(np.int64)) + 1
        scores = (rng.random(200) < rng.uniform(0.40, 0.95)).astype(np.float64)
        documents = Documents(lengths, np.ones(200), scores, True)
        settings = replace(SETTINGS, seed=seed * models + model)
        verdict = conclude(documents, settings, baseline_of(documents, settings))
        found += verdict.finding.verdict.value in ALARMS
    return found


def report_cost(models: int) -> None:
    """Write the report of ``models`` models with a cliff each, and print its cost."""
    results, answers = [], []
    for i in range(models):
        rng = np.random.default_rng((7, i))
        lengths = np.sort(np.exp(rng.normal(7.0, 1.0, 200)).astype(np.int64)) + 1
        right = rng.random(200) < 0.95 / (1 + (lengths / (400 * 1.04**i)) ** 3)
        rows = pd.DataFrame({"length_tokens": lengths, "score": right.astype(float)})
        settings = replace(SETTINGS, second_opinions=False)
        context = ProfileContext(f"model-{i:02d}", task="lookup", tokenizer="reference")
        results.append(profile_model(rows, [], settings, context).cliffs)
        answers.append(rows.assign(model=f"model-{i:02d}"))
    with TemporaryDirectory() as folder:
        started, cpu = time.perf_counter(), time.process_time()
        write_report(results, pd.concat(answers), Path(folder), title="Many models")
        took, used = time.perf_counter() - started, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        largest = max((Image.open(f).size for f in files if f.suffix == ".png"), key=max)
        size = sum(file.stat().st_size for file in files) / 1e6
    print(f"report of {models} models: {took:.1f} s, {used:.1f} CPU s, {peak:,.0f} MB at most")
    print(f"largest picture {largest[0]:,} x {largest[1]:,}; {len(files)} files, {size:.1f} MB")


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("sets", 200), ("models", 50), ("jobs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    report_cost(given.models)
    if not given.sets:
        return
    with ProcessPoolExecutor(given.jobs) as pool:
        counts = list(pool.map(alarms, range(given.sets), [given.models] * given.sets, chunksize=4))
    single = share(sum(counts), given.sets * given.models)
    print(f"alarms of one model: {single}; mean of a set of {given.models}: {np.mean(counts):.2f}")
    print(f"sets with any alarm: {share(sum(n > 0 for n in counts), given.sets)}")


if __name__ == "__main__":
    main()
