"""The length axis cut into stable, transition and degraded regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Zone, ZoneName

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.analysis.records.samples import Sample


def zones_of(finding: Finding, cap: int | None, sample: Sample) -> list[Zone]:
    """The ``zones`` of ``cliffs.json``: half-open, gap-free from the shortest scored length to the
    longest + 1: nothing is said of lengths that were not measured.

    Stable up to the cap. With a loss: degraded from where 90% of the fall has happened and its half
    lies behind with confidence (a dip: inside its window), transition between. What else lies
    beyond the cap is not shown. None at all where the data support no verdict.
    """
    if finding.verdict is Verdict.INSUFFICIENT_DATA or not len(sample.examples):
        return []
    lengths = sample.examples["length_tokens"].to_numpy(np.int64)
    scores = sample.examples["score"].to_numpy(np.float64)
    end = int(lengths.max()) + 1
    cuts: list[tuple[ZoneName, int]]
    safe = 0 if cap is None else cap + 1
    if finding.cliff is None:
        floor = finding.verdict is Verdict.FLOOR
        cuts = [("stable", safe), ("degraded" if floor else "not_shown", end)]
    elif finding.verdict is Verdict.DIP:
        start, stop = finding.degraded
        cuts = [
            ("stable", min(safe, start)),
            ("transition", start),
            ("degraded", stop),
            ("not_shown", end),
        ]
    else:
        cuts = [("stable", safe), ("transition", max(finding.degraded[0], safe)), ("degraded", end)]
    zones: list[Zone] = []
    position = int(lengths.min())
    for name, to in cuts:
        to = min(to, end)
        if to <= position:
            continue
        inside = scores[(lengths >= position) & (lengths < to)]
        mean = float(inside.mean()) if len(inside) else None
        zones.append(Zone(name, position, to, mean, len(inside)))
        position = to
    return zones
