"""Names of benchmarks and formats in the report, and length axes with ticks at scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.extensions.utilization.scales import scale_tokens
from contextcliff_dagster.reporting.figures.house import token_limits, with_air

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BENCHMARK_NAMES: Mapping[BenchmarkName, str] = {
    "warehouse": "warehouse (ledger)",
    "constraints": "constraints",
    "network": "network",
}


def scope_name(benchmark: BenchmarkName | None, asked: Sequence[BenchmarkName]) -> str:
    """Return the name of a benchmark, or of all measured ones."""
    if benchmark is None and len(asked) == 1:
        (benchmark,) = asked
    return "all benchmarks" if benchmark is None else BENCHMARK_NAMES[benchmark]


def scale_axis(axes: Axes, labels: Sequence[str], seen: Sequence[float], most: int) -> None:
    """Set a log axis over ``seen`` lengths (tokens) with at most ``most`` scales as ticks.

    The largest scale always has a tick.
    """
    axes.set_xscale("log", base=2)
    axes.set_xlim(*with_air(*token_limits(seen)))
    axes.minorticks_off()
    step = -(-len(labels) // most)
    ticks = list(labels)[(len(labels) - 1) % step :: step]
    axes.set_xticks([scale_tokens(label) for label in ticks], ticks)
