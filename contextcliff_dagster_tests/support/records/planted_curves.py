"""Records with a known truth: a planted curve over natural lengths, scored without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contextcliff_dagster.analysis.records import decile_bins
from contextcliff_dagster.contracts import LengthBin

Floats = NDArray[np.float64]
Curve = Callable[[Floats], Floats]


def ramp(half: float, top: float = 0.98, gone: float = 2.25) -> Curve:
    """Logistic in log length: ``top`` / 2 at ``half`` tokens, .10 at ``gone`` times that."""
    width = np.log(gone) / np.log(top / 0.10 - 1)
    return lambda tokens: top / (1 + np.exp((np.log(tokens) - np.log(half)) / width))


def shelf(scale: float) -> Curve:
    """Flat to 273 tokens x ``scale``, two thirds at 399, a shelf, then the rest; L70 at 391."""
    tokens = np.array([40, 273, 309, 351, 399, 453, 519, 700, 1_152, 8_000])
    mean = [0.995, 0.993, 0.971, 0.871, 0.668, 0.609, 0.553, 0.33, 0.08, 0.0]
    return lambda x: np.interp(np.log(x), np.log(scale * tokens), mean)


def step(at: float, before: float, after: float) -> Curve:
    return lambda tokens: np.where(tokens < at, before, after)


def flat(level: float) -> Curve:
    return lambda tokens: np.full(len(tokens), level)


def lengths_of(rng: np.random.Generator, per_bin: int = 20, count: int = 10) -> NDArray[np.int64]:
    """Stratified log-uniform lengths, 40 to 5,900 tokens."""
    pool = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), 3_000)).astype(np.int64))
    drawn = [rng.choice(part, per_bin, replace=False) for part in np.array_split(pool, count)]
    return np.concatenate(drawn)


def plant(
    curve: Curve,
    seed: int,
    *,
    per_bin: int = 20,
    graded: bool = False,
    questions: int = 1,
    replicates: int = 1,
) -> pd.DataFrame:
    """Eval records of a model that follows ``curve``, as the analysis reads them."""
    rng = np.random.default_rng(seed)
    lengths = np.repeat(lengths_of(rng, per_bin // questions), questions)
    mean = curve(lengths.astype(float))
    rows: list[dict[str, Any]] = []
    for i, (length, m) in enumerate(zip(lengths, mean, strict=True)):
        for replicate in range(replicates):
            score = rng.beta(4 * m + 0.1, 4 * (1 - m) + 0.1) if graded else float(rng.random() < m)
            rows.append(
                {
                    "document_id": f"doc{i // questions}",
                    "example_id": f"ex{i}",
                    "replicate": replicate,
                    "length_tokens": int(length),
                    "score": score,
                    "failed": score == 0,
                    "failure": None if score > 0 else "hallucination",
                    "ttft_ms": 5 + 0.02 * length + rng.normal(0, 0.1),
                    "duration_ms": 30 + 0.02 * length,
                    "prompt_tokens": int(length) + 11,
                }
            )
    return pd.DataFrame(rows)


def bins_of(records: pd.DataFrame, count: int = 10) -> list[LengthBin]:
    return decile_bins(records["length_tokens"].to_numpy(np.int64), count)
