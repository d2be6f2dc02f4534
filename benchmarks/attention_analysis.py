"""False-alarm rates of attention as a sign of wrong answers and of RoPE failure.

    python benchmarks/attention_analysis.py [--runs 1000] [--examples 200] [--jobs 2]
                                            [--planted "auc .7, step"] [--equal-length]

The data: one question on each of `--examples` documents of log-uniform lengths of 200 to 16,000
tokens, ten bins, a model trained to 4,000 tokens. The chance of a right answer falls from .9 to .2
to .4 in one step between 800 and 8,000 tokens; entropy grows smoothly with length, with noise.
Planted:

- "smooth": nothing more, so entropy and answers depend on length only;
- "jump": entropy also jumps at an independent length; both still depend on length only;
- "same place": entropy jumps where the answers fall; both still depend on length only;
- "auc .7, step": at equal length, entropy foretells a wrong answer with an AUC of .7;
- "auc .7, slope": the same with answers that fall over a factor of about 3 of length.

"foretells": either predictor does, by p-value (Holm) and interval. "AUC in its interval": .5 or .7.
"threshold": one is supported. "RoPE": the sentence is printed. `--equal-length`: without these two,
which take most of the time.
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

from contextcliff_dagster.analysis.attention import (
    AttentionSample,
    foretell_wrong_answers,
    judge_attention,
    match_attention,
)
from contextcliff_dagster.analysis.cliff import baseline_of, find_verdict
from contextcliff_dagster.analysis.records import AnalysisSettings, Sample, clean_records
from contextcliff_dagster.analysis.statistics.intervals import exact_interval

PLANTED = ("smooth", "jump", "same place", "auc .7, step", "auc .7, slope")
TRAINED, WINDOW = 4_000, 16_384
SHIFT = 0.7416
"""Distance in SDs between the means of two normal predictors that gives an AUC of .7."""


def draw(rng: np.random.Generator, planted: str, count: int) -> tuple[Sample, AttentionSample]:
    """Draw the scored records and the attention of one model."""
    tokens = np.sort(np.exp(rng.uniform(np.log(200), np.log(16_000), count))).astype(np.int64)
    fall, jump = np.exp(rng.uniform(np.log(800), np.log(8_000), 2))
    low, steps = (
        rng.uniform(0.2, 0.4),
        np.log(tokens / fall) / (0.5 if "slope" in planted else 1e-9),
    )
    chance = low + (0.9 - low) / (1.0 + np.exp(np.clip(steps, -35, 35)))
    score = (rng.random(count) < chance).astype(np.float64)
    size = 0.08 if planted in ("jump", "same place") else 0.0
    place = fall if planted == "same place" else jump
    noise = rng.normal(0.0, 1.0, count) + SHIFT * (1 - score) * planted.startswith("auc")
    drift = 0.4 + 0.03 * np.log(tokens / 200) + 0.004 * np.log(tokens / 200) ** 2
    entropy = drift + size * (tokens >= place) + 0.02 * noise
    evidence = 0.2 - 0.02 * np.log(tokens / 200) + 0.02 * rng.normal(0.0, 1.0, count)
    names = [f"e{i}" for i in range(count)]
    records = pd.DataFrame(
        {
            "document_id": [f"d{rng.integers(1 << 60)}" for _ in names],
            "example_id": names,
            "length_tokens": tokens,
            "score": score,
        }
    )
    attention = AttentionSample(
        example_ids=tuple(names),
        tokens=tokens + 40,
        entropy=entropy.clip(0, 1)[:, None, None],
        sinks=np.full((count, 1, 1), 0.3),
        evidence=evidence.clip(0, 1)[:, None, None],
        trained_tokens=TRAINED,
    )
    return clean_records(records, []), attention


def judge(seed: int, planted: str, count: int, equal_length: bool) -> tuple[bool, ...]:
    """Judge one data set: "foretells", "AUC in its interval" and, if asked, the other two."""
    rng = np.random.default_rng((seed, PLANTED.index(planted)))
    sample, attention = draw(rng, planted, count)
    settings = AnalysisSettings(seed=seed)
    matched = match_attention(attention, sample)
    if matched is None:
        raise SystemExit("no example has both a score and attention")
    foretold = foretell_wrong_answers(matched, sample.bins, settings)
    low, high = foretold[0].ci_low, foretold[0].ci_high
    truth = 0.7 if planted.startswith("auc") else 0.5
    held = low is not None and high is not None and low <= truth <= high
    shown = any(one.foretells for one in foretold), held
    if equal_length:
        return shown
    documents = sample.documents()
    finding = find_verdict(documents, settings, baseline_of(documents, settings))
    result = judge_attention(attention, sample, finding, WINDOW, settings)
    threshold = result.threshold if result else None
    return *shown, bool(threshold and threshold.supported), bool(result and result.rope)


def share(hits: int, runs: int) -> str:
    """Return a share with its exact 95% interval."""
    low, high = exact_interval(hits, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", choices=PLANTED, action="append")
    parser.add_argument("--equal-length", action="store_true")
    given = parser.parse_args()
    head = ["planted", "foretells", "AUC in its interval"]
    head += [] if given.equal_length else ["threshold", "RoPE"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        for planted in given.planted or PLANTED:
            one = partial(
                judge, planted=planted, count=given.examples, equal_length=given.equal_length
            )
            done = list(pool.map(one, range(given.runs), chunksize=10))
            cells = [share(sum(column), given.runs) for column in zip(*done, strict=True)]
            print(f"| {planted} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
