"""How often some model of many raises a false alarm: what docs/calibration.md reports.

    python benchmarks/many_models.py [--sets 200] [--models 50] [--jobs 2]

A set is `--models` models whose mean score is the same at every length, .40 to .95, with 0/1 scores
of 200 documents each (20 in each of ten bins). An alarm is a verdict cliff, gradual_decline or dip.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from accept import ALARMS, SETTINGS, share

from contextcliff_dagster.analysis.cliff.baseline import baseline_of
from contextcliff_dagster.analysis.cliff.conclusion import conclude
from contextcliff_dagster.analysis.records.samples import Documents


def alarms(seed: int, models: int) -> int:
    """How many models of a set raise an alarm."""
    found = 0
    for model in range(models):
        rng = np.random.default_rng((seed, model))
        lengths = np.sort(np.exp(rng.normal(9.0, 1.0, 200)).astype(np.int64)) + 1
        scores = (rng.random(200) < rng.uniform(0.40, 0.95)).astype(np.float64)
        documents = Documents(lengths, np.ones(200), scores, True)
        settings = replace(SETTINGS, seed=seed * models + model)
        verdict = conclude(documents, settings, baseline_of(documents, settings).mean)
        found += verdict.finding.verdict.value in ALARMS
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("sets", 200), ("models", 50), ("jobs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        counts = list(pool.map(alarms, range(given.sets), [given.models] * given.sets, chunksize=4))
    single = share(sum(counts), given.sets * given.models)
    print(f"alarms of one model: {single}; mean of a set of {given.models}: {np.mean(counts):.2f}")
    print(f"sets with any alarm: {share(sum(n > 0 for n in counts), given.sets)}")


if __name__ == "__main__":
    main()
