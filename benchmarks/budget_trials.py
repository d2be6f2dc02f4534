"""A budget in randomised trials: several processes, errors, kills, and a server that bills.

    python benchmarks/budget_trials.py [--trials 100] [--seed 0] [--json]

Each trial draws a limit (USD, USD per day, tokens or calls) below or above the study's cost, one to
three processes on one ledger, a concurrency, a share of failed requests, up to two ``kill -9`` and,
in one of four trials, a server that counts up to three times the reserved tokens. The server's
request log decides: everything that a model may have worked on is billed, and answers that nobody
received are billed at their longest. For the claims, see
`contextcliff_dagster_tests.support.budget_trial`. Exits with 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from contextcliff_dagster_tests.support.budget_trial import Result, context, draw, run


def figures(results: list[Result], seconds: float) -> dict[str, object]:
    """Return the summary figures of the trials."""
    covered = [r for r in results if r.trial.count_factor == 1.0]
    uncovered = [r for r in results if r.trial.count_factor > 1.0 and r.limit > 0]
    stopped = [r for r in covered if r.ends["budget"] and r.limit > 0]
    return {
        "trials": len(results),
        "seconds": round(seconds),
        "by limit": dict(Counter(r.trial.limit for r in results)),
        "requests": sum(r.requests for r in results),
        "runs": dict(sum((r.ends for r in results), Counter())),
        "reservations cover the bill": len(covered),
        "  of these exceeded": sum(r.beyond > 1e-9 * r.limit for r in covered),
        "  share of the limit billed, of those stopped, at most": max(
            (round(r.billed / r.limit, 4) for r in stopped), default=None
        ),
        "the server counts more than is reserved": len(uncovered),
        "  exceeded": sum(r.beyond > 1e-9 * r.limit for r in uncovered),
        "  beyond the limit, as a share of what is stated, at most": max(
            (round(r.beyond / (r.allowed - r.limit), 3) for r in uncovered if r.allowed > r.limit),
            default=None,
        ),
        "beyond what is stated": sum(r.billed > r.allowed * (1 + 1e-9) for r in results),
        "broken": [{**asdict(r.trial), "claims": r.broken} for r in results if r.broken],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    rng, ctx = random.Random(options.seed), context()
    began = time.perf_counter()
    results = []
    for number in range(options.trials):
        with tempfile.TemporaryDirectory(prefix="budget-") as folder:
            results.append(run(draw(rng), Path(folder), ctx))
        print(f"{number + 1}: {results[-1]}", file=sys.stderr)
    totals = figures(results, time.perf_counter() - began)
    if options.json:
        print(json.dumps(totals, indent=2))
    else:
        for name, value in totals.items():
            print(f"{name:60} {value}")
    return 1 if totals["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
