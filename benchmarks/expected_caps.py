"""Comparison of the cap expected of more data with the cap that more data give.

    python benchmarks/expected_caps.py [--runs 12]

Data: 0/1 scores, one per document, ten bins of 20 over log-uniform lengths of 40 to 5,900 tokens.
For each data set, the median cap that `robustness.sample_size` expects of 1, 2, 4 and 8 times the
data is compared with the caps of independent data sets of those sizes. Printed are medians over the
runs, with quartiles of the expected caps.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.analysis.cliff import Conclusion, baseline_of, conclude
from contextcliff_dagster.analysis.records import AnalysisSettings, Documents
from contextcliff_dagster.analysis.sample_size import _Expected

Floats = NDArray[np.float64]
LOW, HIGH, BINS, PER_BIN = 40.0, 5_900.0, 10, 20
TIMES = (1, 2, 4, 8)
SETTINGS = AnalysisSettings(permutations=99, resamples=100)
CURVES: dict[str, Callable[[Floats], Floats]] = {
    "flat at .95": lambda x: np.full(len(x), 0.95),
    "flat at .80": lambda x: np.full(len(x), 0.80),
    "line .80 to .70": lambda x: 0.8 - 0.1 * np.log(x / LOW) / np.log(HIGH / LOW),
    "step .80 to .30 at 1,500": lambda x: np.where(x < 1_500, 0.8, 0.3),
}


def draw(rng: np.random.Generator, curve: str, times: int) -> tuple[Documents, Conclusion]:
    edges = np.linspace(np.log(LOW), np.log(HIGH), BINS + 1)
    x = rng.uniform(edges[:-1, None], edges[1:, None], (BINS, PER_BIN * times)).ravel()
    lengths = np.sort(np.exp(x).astype(np.int64))
    scores = (rng.random(len(lengths)) < CURVES[curve](lengths.astype(float))) * 1.0
    documents = Documents(lengths, np.ones(len(lengths)), scores, True)
    return documents, conclude(documents, SETTINGS, baseline_of(documents, SETTINGS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=12)
    given = parser.parse_args()
    print("| curve | n | foreseen [quartiles] | of such data sets |\n|---|---|---|---|")
    for curve in CURVES:
        foreseen: dict[int, list[int]] = {times: [] for times in TIMES}
        caps: dict[int, list[int]] = {times: [] for times in TIMES}
        for seed in range(given.runs):
            rng = np.random.default_rng((seed, list(CURVES).index(curve)))
            documents, conclusion = draw(rng, curve, 1)
            expected = _Expected(documents, conclusion.finding, SETTINGS)
            for times in TIMES:
                foreseen[times].append(expected.median_cap(float(times)) or 0)
                caps[times].append(draw(rng, curve, times)[1].cap.tokens or 0)
        for times in TIMES:
            low, middle, high = np.quantile(foreseen[times], (0.25, 0.5, 0.75))
            print(
                f"| {curve} | {times * PER_BIN} | {middle:,.0f} [{low:,.0f}, {high:,.0f}] "
                f"| {np.median(caps[times]):,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
