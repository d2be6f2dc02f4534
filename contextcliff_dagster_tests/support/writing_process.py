"""A process that keeps answers in a ledger without a break, while its database server crashes.

``python -m contextcliff_dagster_tests.support.writing_process URL NAME`` prints the key of every
call whose answer the ledger has acknowledged, and ends once its standard input is closed.
"""

from __future__ import annotations

import itertools
import select
import sys
from dataclasses import replace

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.requests.call_plan import (
    Outcome,
    PlannedCall,
    plan_calls,
    utc_now,
)
from contextcliff_dagster.inference.spending import Budget, Spend
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample

AT_ONCE = 8
SAMPLE = LedgerSample(1, AT_ONCE)
CALLS = plan_calls(SAMPLE, "identity", RECIPE, "c", SAMPLE.bins, AT_ONCE)


def answer_to(call_key: str) -> str:
    """The answer that belongs to the call."""
    return f"answer to {call_key}"


def write(ledger: Ledger, calls: list[PlannedCall]) -> list[str]:
    """Begin and finish the calls; the keys of those that are kept."""
    scope, most = Scope("s", "c", "m", "identity"), Spend(0.001, 10, 1)
    begun = [ledger.begin(call, call.prompt(), scope, most, Budget()) for call in calls]
    numbers = [future.result().attempt_id for future in begun]
    kept = []
    for call, number in zip(calls, numbers, strict=True):
        outcome = Outcome(raw_output=answer_to(call.call_key), attempts=1, finished_at=utc_now())
        kept.append((call.call_key, ledger.finish(number, call.call_key, outcome, most)))
    return [key for key, future in kept if future.result() is None]


def main() -> int:
    url, name = sys.argv[1:]
    try:
        with Ledger.open(DatabaseUrl(url)) as ledger:
            for turn in itertools.count():
                calls = [replace(c, call_key=f"{name}-{turn}-{n}") for n, c in enumerate(CALLS)]
                print(*write(ledger, calls), sep="\n", flush=True)
                if select.select([sys.stdin], [], [], 0)[0]:
                    return 0
    except ContextCliffError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
