"""Error rates of telling a loss over length from a mix of questions that changes with length.

    python benchmarks/confounds.py [--runs 200] [--jobs 2]

Documents of log-uniform lengths of 40 to 5,900 tokens with 0/1 questions of two kinds: easy ones
with a chance of .80 to .95, hard ones of .20 to .45, drawn anew for every data set. Planted:

- "all mix": the share of hard questions rises with length, from .05-.20 to .80-.95, evenly or at
  one place; length does nothing;
- "length, even mix": 30 to 70% are hard at every length; from 30-75% of the documents on, both
  kinds lose 40 to 60%;
- "length, varying mix": the same loss, while the share of hard ones rises from .10-.30 to .60-.80;
- "no loss, even mix" and "apart": no loss, and a loss where all hard questions are in the longer
  half, which nothing can distinguish.

In the last design, records also name two levels, three domains and the evidence position, which are
unrelated to length and score; any of them may seem to explain a loss by chance.

"called": `confounds.identified`. "error": median of |standardised drop - planted drop| and median
of the signed difference; "held": share of the drop's 95% intervals that contain the planted drop.
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

from contextcliff_dagster.analysis.cliff import baseline_of, find_verdict
from contextcliff_dagster.analysis.confounds import audit_confounds
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.intervals import agreeing_interval

PLANTED = ("all mix", "length, even mix", "length, varying mix", "no loss, even mix", "apart")
BESIDE = "300 documents; level, domain, place besides"
DESIGNS = {
    "300 documents": (300, 1),
    "150 documents, 3 questions each": (150, 3),
    BESIDE: (300, 1),
}


def draw(
    rng: np.random.Generator, planted: str, count: int, questions: int
) -> tuple[pd.DataFrame, float]:
    """Draw records, and return them with the drop that length causes."""
    tokens = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), count)).astype(np.int64))
    place = np.arange(count) / count
    first = float(rng.uniform(0.30, 0.75))
    drop = float(rng.uniform(0.40, 0.60)) if "length" in planted else 0.0
    share = np.full(count, rng.uniform(0.30, 0.70))
    if planted == "all mix":
        low, high = rng.uniform(0.05, 0.20), rng.uniform(0.80, 0.95)
        at_once = rng.random() < 0.5
        share = low + (high - low) * (place >= first if at_once else place)
    elif planted == "length, varying mix":
        share = rng.uniform(0.10, 0.30) + rng.uniform(0.40, 0.50) * place
    elif planted == "apart":
        share = (place >= 0.5) * 1.0
    hard = rng.random((count, questions)) < share[:, None]
    chance = np.where(hard, rng.uniform(0.20, 0.45), rng.uniform(0.80, 0.95))
    chance = chance * (1.0 - drop * (place >= first))[:, None]
    document = np.repeat(np.arange(count), questions)
    records = pd.DataFrame(
        {
            "document_id": [f"d{i}" for i in document],
            "example_id": [f"e{i}" for i in range(count * questions)],
            "length_tokens": tokens[document],
            "score": (rng.random(chance.shape) < chance).astype(np.float64).ravel(),
            "kind": np.where(hard, "hard", "easy").ravel(),
        }
    )
    return records, drop


def audit(seed: int, planted: str, design: str) -> tuple[str, bool, float, bool]:
    """Audit one data set: the call, whether a loss was found, the drop's error and coverage."""
    rng = np.random.default_rng((seed, PLANTED.index(planted), list(DESIGNS).index(design)))
    records, drop = draw(rng, planted, *DESIGNS[design])
    if design == BESIDE:
        records["level"] = rng.integers(1, 3, len(records)).astype(str)
        records["domain"] = [f"domain {i}" for i in rng.integers(0, 3, len(records))]
        records["evidence_position"] = rng.random(len(records))
    settings = AnalysisSettings()
    sample = clean_records(records, [])
    documents = sample.documents()
    finding = find_verdict(documents, settings, baseline_of(documents, settings))
    result = audit_confounds(sample, finding, settings)
    row = next(row for row in result.mix if row.category == "kind")
    error = np.nan if row.drop is None else row.drop - drop
    held = row.drop is not None and row.drop_ci_low <= drop <= row.drop_ci_high
    return result.confounds.identified, finding.visible, error, held


def share(hits: int, runs: int) -> str:
    low, high = agreeing_interval(hits / runs, runs, 0.95)
    return f"{hits / runs:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", choices=PLANTED, nargs="*", default=PLANTED)
    parser.add_argument("--design", choices=list(DESIGNS), nargs="*", default=list(DESIGNS))
    given = parser.parse_args()
    head = ("data", "planted", "loss found", "called yes", "called no", "error", "held")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        for design in given.design:
            for planted in given.planted:
                one = partial(audit, planted=planted, design=design)
                done = list(pool.map(one, range(1_000, 1_000 + given.runs), chunksize=10))
                called = [answer for answer, _, _, _ in done]
                errors = np.array([error for _, _, error, _ in done])
                known = errors[~np.isnan(errors)]
                middle = (np.abs(known), known) if len(known) else None
                cells = [
                    share(sum(seen for _, seen, _, _ in done), given.runs),
                    share(called.count("yes"), given.runs),
                    share(called.count("no"), given.runs),
                    ", ".join(f"{np.median(x):.3f}" for x in middle) if middle else "none",
                    share(sum(held for *_, held in done), len(known)) if len(known) else "none",
                ]
                print(f"| {design} | {planted} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
