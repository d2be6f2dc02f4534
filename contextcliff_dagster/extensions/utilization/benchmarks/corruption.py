"""Documents of which some records were changed.

What stays: the number, order, types, times and identifiers of records, so that a format reads them
as before. What may change, and what holds of it afterwards:

- warehouse: quantities, the same on both sides of a transfer; no stock falls below 0.
- constraints: values, and with whom a value is shared; the statements still contradict nothing, for
  they are true of another assignment.
- network: initial weights and the values of events; weights stay whole and at least 1.

``distractors``: no record that matters to a question, and none that could lead to another answer
if the statements that matter stay (such as a connection that becomes a shortcut); answers stay.
``recomputed``: any record; answers, evidence and margins follow from what is then written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from contextcliff_dagster.extensions.utilization.benchmarks.asking import Made, RetryError
from contextcliff_dagster.extensions.utilization.benchmarks.constraints import change_constraints
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Draws,
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

    Where a question could no longer be missed by missing one of its records, others are drawn.

    Raises:
        ValueError: not so many records can be changed.
    """
    if not 0 <= share < 1:
        raise ValueError(f"a share of {share} is not from 0 to below 1")
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
            for place, (one, other) in enumerate(zip(change.records, data.records, strict=True))
            if one != other
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
