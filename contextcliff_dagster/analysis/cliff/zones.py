"""The length axis cut into stable, transition and degraded regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Zone, ZoneName

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.cliff.verdict import Finding
    from contextcliff_dagster.contracts.arrays import Floats, Ints


def zones_of(finding: Finding, cap: int | None, lengths: Ints, scores: Floats) -> list[Zone]:
    """The ``zones`` of ``cliffs.json``: half-open, gap-free from 0 to the longest length + 1.

    With a loss: stable up to the cap; degraded from where 90% of the fall has happened and its half
    lies behind with confidence (a dip: inside its window); transition between. Without one the
    whole range is stable, also beyond the cap: nothing was seen there, it only is not certified.
    None at all where the data support no verdict.

    Args:
        lengths, scores: of the examples.
    """
    if finding.verdict is Verdict.INSUFFICIENT_DATA or not len(lengths):
        return []
    end = int(lengths.max()) + 1
    cuts: list[tuple[ZoneName, int]]
    safe = 0 if cap is None else cap + 1
    if finding.verdict is Verdict.FLOOR:
        cuts = [("degraded", end)]
    elif finding.verdict is Verdict.STABLE or finding.cliff is None:
        cuts = [("stable", end)]
    elif finding.verdict is Verdict.DIP:
        start, stop = finding.degraded
        cuts = [
            ("stable", min(safe, start)),
            ("transition", start),
            ("degraded", stop),
            ("stable", end),
        ]
    else:
        cuts = [("stable", safe), ("transition", max(finding.degraded[0], safe)), ("degraded", end)]
    zones: list[Zone] = []
    position = 0
    for name, to in cuts:
        to = min(to, end)
        if to <= position:
            continue
        inside = scores[(lengths >= position) & (lengths < to)]
        mean = float(inside.mean()) if len(inside) else None
        zones.append(Zone(name, position, to, mean))
        position = to
    return zones
