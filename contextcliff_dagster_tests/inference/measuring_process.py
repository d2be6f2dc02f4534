"""A measurement in a process of its own, to be killed.

``python -m contextcliff_dagster_tests.inference.measuring_process LEDGER BASE_URL BINS N DIE``.
LEDGER: the path of a file, or a PostgreSQL URL.
DIE: ``none``; ``response:K`` kills itself with SIGKILL after the K-th answer has arrived and before
it is committed. Prints the run's summary as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.inference.ledger import Ledger
from contextcliff_dagster.inference.measure import measure
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.inference.samples import RECIPE, LedgerSample, openai_entry


def die_before_commit(number: int) -> None:
    answered = 0
    finish = Ledger.finish

    def counted(self: Ledger, *arguments: Any) -> Any:
        nonlocal answered
        answered += 1
        if answered == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return finish(self, *arguments)

    Ledger.finish = counted  # type: ignore[method-assign]


def main() -> int:
    path, url, bins, n, die = sys.argv[1:6]
    if die.startswith("response:"):
        die_before_commit(int(die.split(":")[1]))
    sample = LedgerSample(int(bins), int(n), max_tokens=300)
    print("ready", flush=True)
    try:
        with Ledger.open(DatabaseUrl(path) if "://" in path else Path(path)) as ledger:
            entry = openai_entry(url, concurrency=3, tokenizer="reference")
            summary = measure(
                sample, entry, RECIPE, ledger, study="s", campaign="c", bins=sample.bins, n=int(n)
            )
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    except ContextCliffError as fault:
        print(fault, flush=True)
        return 2
    print(json.dumps(summary.to_dict()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
