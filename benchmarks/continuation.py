"""What measuring and judging continuations costs, and how often the conclusions are right.

    python benchmarks/continuation.py metrics [--generations 1000] [--jobs 2]

"metrics": seconds for all metrics of so many generations of 1,024 tokens, 770 words each, without
embeddings: stretches of the novels in data/prose (`make prose`), else of random words.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

WORDS = 770


def generations(count: int) -> list[str]:
    """So many texts of 770 words."""
    from tools.fetch_prose import prose_folder

    texts = [path.read_text(encoding="utf-8") for path in sorted(prose_folder().glob("*.txt"))]
    if not texts:
        rng = np.random.default_rng(0)
        letters = list("etaoinshrdlcumwfgypbvk")
        vocabulary = ["".join(rng.choice(letters, rng.integers(1, 10))) for _ in range(5_000)]
        drawn = rng.zipf(1.3, 400_000) % len(vocabulary)
        texts = [" ".join(vocabulary[i] + ". " * (i % 17 == 0) for i in drawn)]
        print("(random words: data/prose is empty)")
    words = [word for text in texts for word in text.split()]
    starts = np.linspace(0, len(words) - WORDS, count).astype(int)
    return [" ".join(words[start : start + WORDS]) for start in starts]


def measure_text(text: str) -> float:
    """All that is measured of one text."""
    from contextcliff_dagster.experiments.continuation.prose.metrics import prose_metrics

    return prose_metrics(text).words or 0.0


def show_metrics(given: argparse.Namespace) -> None:
    """Seconds, wall clock, and words measured."""
    texts = generations(given.generations)
    with ProcessPoolExecutor(given.jobs) as pool:
        list(pool.map(measure_text, texts[: 2 * given.jobs]))  # imports
        start = time.perf_counter()
        words = sum(pool.map(measure_text, texts, chunksize=20))
        seconds = time.perf_counter() - start
    print(
        f"metrics: {len(texts):,} generations, {words / len(texts):.0f} words each:"
        f" {seconds:.1f} s on {given.jobs} processes"
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"metrics": show_metrics}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    metrics = parts.add_parser("metrics")
    metrics.add_argument("--generations", type=int, default=1_000)
    metrics.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    PARTS[given.part](given)


if __name__ == "__main__":
    main()
