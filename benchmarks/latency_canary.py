"""Separation of normal from slow calls by the law of time over length.

200 calls have log-uniform lengths of 40 to 5,900 tokens and times a + b L + c L^2 with lognormal
noise; a share of the longest calls is slower by a factor. Printed for each law: the largest median
excess of a normal bin (should be 0; median and maximum over runs) and the smallest of a slow bin
(should be the factor minus 1).

    python benchmarks/latency_canary.py [RUNS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from contextcliff_dagster.analysis.latency import fit_length_law

Floats = NDArray[np.float64]
CALLS, BINS = 200, 10
SERVERS = {
    "constant": (500.0, 0.0, 0.0),
    "linear": (20.0, 0.05, 0.0),
    "base + linear": (500.0, 0.05, 0.0),
    "some attention": (20.0, 0.02, 3e-6),
    "mostly attention": (1.0, 0.001, 2e-5),
}
SLOW = ((0.0, 1.0), (0.1, 1.5), (0.2, 1.5), (0.3, 2.0))


def ours(lengths: Floats, ms: Floats) -> Floats:
    law = fit_length_law(lengths, ms)
    assert law is not None
    return law(lengths)


def theil_sen(lengths: Floats, ms: Floats) -> Floats:
    line = stats.theilslopes(ms, lengths)
    return np.maximum(line.intercept + line.slope * lengths, 1e-3)


def siegel(lengths: Floats, ms: Floats) -> Floats:
    line = stats.siegelslopes(ms, lengths)
    return np.maximum(line.intercept + line.slope * lengths, 1e-3)


LAWS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "ours": ours,
    "Theil-Sen": theil_sen,
    "Siegel": siegel,
}


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rng = np.random.default_rng(0)
    print("| server | scatter | slow calls | " + " | ".join(LAWS) + " |")
    print("|---|---|---|" + "---|" * len(LAWS))
    for server, (a, b, c) in SERVERS.items():
        for scatter in (0.02, 0.1):
            for share, factor in SLOW:
                normal: dict[str, list[float]] = {name: [] for name in LAWS}
                slow: dict[str, list[float]] = {name: [] for name in LAWS}
                for _ in range(runs):
                    lengths = np.sort(np.exp(rng.uniform(np.log(40), np.log(5_900), CALLS)))
                    ms = a + b * lengths + c * lengths**2
                    ms = ms * np.exp(rng.normal(0, scatter, CALLS))
                    first_slow = round((1 - share) * CALLS)
                    ms[first_slow:] *= factor
                    for name, law in LAWS.items():
                        excess = ms / law(lengths, ms) - 1
                        bins = [float(np.median(part)) for part in np.array_split(excess, BINS)]
                        cut = round((1 - share) * BINS)
                        normal[name].append(max(map(abs, bins[:cut])))
                        slow[name].append(min(bins[cut:], default=np.nan))
                cells = [
                    f"{np.median(normal[name]):.2f} (< {max(normal[name]):.2f})"
                    + (f", {np.median(slow[name]):+.2f}" if share else "")
                    for name in LAWS
                ]
                setting = f"{share:.0%} x {factor:g}" if share else "none"
                print(f"| {server} | {scatter:.0%} | {setting} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
