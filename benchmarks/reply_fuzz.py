"""Outcome of replies with arbitrary JSON, broken bytes, odd statuses and odd headers.

    python benchmarks/reply_fuzz.py [--replies 100000] [--served 5000] [--seed 0]

``--replies`` replies go through the client's reader, classification and charging without a socket;
``--served`` more come from a real HTTP server in runs with a ledger and a budget. Exits with 1 if
an answer is lost, a charge is wrong, or a run ends unexpectedly.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, Phase, given, seed, settings

from contextcliff_dagster.inference.engines.openai.engine import OpenAIEngine
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster_tests.support.records.calls import RECIPE, LedgerSample, openai_entry
from contextcliff_dagster_tests.support.servers.any_reply import Case, cases
from contextcliff_dagster_tests.support.servers.reply_checks import InProcess, served_run

A_RUN = 100


def in_process(replies: int, first: int) -> Counter[str]:
    """Count how the calls ended, by kind, without sockets."""
    sample = LedgerSample(1, 1)
    (call,) = plan_calls(sample, "identity", RECIPE, "c", sample.bins, 1)
    client = InProcess(OpenAIEngine(openai_entry("http://127.0.0.1:9/v1")), call)
    ends: Counter[str] = Counter()
    with asyncio.Runner() as runner:

        @seed(first)
        @_drawn(replies)
        @given(case=cases())
        def one(case: Case) -> None:
            end = runner.run(client.ends(case))
            kind = getattr(end, "kind", type(end).__name__)
            kind = "status other than 200" if kind.startswith("http_") else kind
            ends["kept answer" if kind == "Outcome" else kind] += 1

        one()
    return ends


def served(replies: int, first: int) -> Counter[str]:
    """Count how the calls ended, by kind, through sockets in runs of a hundred calls."""
    ends: Counter[str] = Counter()
    script: list[Case] = []

    @seed(first)
    @_drawn(replies)
    @given(case=cases())
    def draw(case: Case) -> None:
        script.append(case)

    draw()
    for start in range(0, len(script), A_RUN):
        with tempfile.TemporaryDirectory() as folder:
            ends += served_run(script[start : start + A_RUN], Path(folder))
    return ends


def _drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def main() -> int:
    """Print the table of how calls ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replies", type=int, default=100_000)
    parser.add_argument("--served", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name, run, replies in (
        ("in process", in_process, options.replies),
        ("over HTTP", served, options.served),
    ):
        if not replies:
            continue
        started = time.perf_counter()
        ends = run(replies, options.seed)
        seconds = time.perf_counter() - started
        print(f"{name}: {sum(ends.values()):,} replies, {seconds:.0f} s")
        for kind, number in ends.most_common():
            print(f"  {number:>8,} {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
