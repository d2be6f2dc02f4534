"""How benchmarks are called in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextcliff_dagster.experiments.utilization.benchmarks.data import BenchmarkName

BENCHMARK_NAMES: Mapping[BenchmarkName, str] = {
    "warehouse": "warehouse (ledger)",
    "constraints": "constraints",
    "network": "network",
}


def scope_name(benchmark: BenchmarkName | None, asked: Sequence[BenchmarkName]) -> str:
    """One benchmark, or all that were asked."""
    if benchmark is None and len(asked) == 1:
        (benchmark,) = asked
    return "all benchmarks" if benchmark is None else BENCHMARK_NAMES[benchmark]
