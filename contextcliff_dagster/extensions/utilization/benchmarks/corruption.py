"""Corruption: documents with some records changed.

The number, order, types, times and identifiers of records stay, so that every format can still be
parsed. These parts may change:

- warehouse: quantities, the same on both sides of a transfer; no stock falls below 0.
- constraints: values, and which cells share a value; the statements stay consistent, because they
  are true of another assignment.
- network: initial weights and the values of events; weights stay whole and at least 1.

``distractors``: only records that no question depends on and that cannot change an answer (such as
a connection that would become a shortcut); answers stay the same.
``recomputed``: any record; answers, evidence and margins are recomputed from the changed records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made
from contextcliff_dagster.extensions.utilization.benchmarks.constraints import change_constraints
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Draws,
    RetryError,
)
from contextcliff_dagster.extensions.utilization.benchmarks.network_answers import change_network
from contextcliff_dagster.extensions.utilization.benchmarks.warehouse import change_warehouse

Corrupted = Literal["distractors", "recomputed"]

_CHANGES: Mapping[BenchmarkName, Callable[[Draws, Benchmark, int, bool], Made]] = {
    "warehouse": change_warehouse,
    "constraints": change_constraints,
    "network": change_network,
}

_MOST_ATTEMPTS = 20


def corrupt(data: Benchmark, share: float, of: Corrupted, seed: int) -> Benchmark:
    """Return ``data`` with ``share`` of its records changed, rounded to whole records.

    Changes are redrawn if a question could be answered without one of its evidence records. Raise
    ValueError if too few records can be changed.
    """
    if not 0 <= share < 1:
        raise ValueError(f"corruption share {share} is out of range; use 0 or more and less than 1")
    count = round(share * len(data.records))
    if not count:
        return data
    for attempt in range(_MOST_ATTEMPTS):
        draws = Draws("corruption", data.name, data.seed, seed, of, attempt)
        try:
            change = _CHANGES[data.name](draws, data, count, of == "recomputed")
        except RetryError:
            continue
        places = [
            place
            for place, (after, before) in enumerate(zip(change.records, data.records, strict=True))
            if after != before
        ]
        if len(places) != count or any(question.margin == 0 for question in change.questions):
            continue
        return replace(
            data,
            records=tuple(change.records),
            questions=tuple(change.questions),
            corrupted=tuple(places),
            notes={**data.notes, **change.notes},
        )
    raise ValueError(
        f"{count} records of a {data.name} document of {len(data.records)} cannot be changed "
        f"({of}); choose a smaller share or a larger scale"
    )
