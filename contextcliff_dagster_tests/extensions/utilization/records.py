"""Records of the utilization benchmarks, drawn from their schema alone: nothing in them is true."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    SCHEMAS,
    Benchmark,
    BenchmarkName,
    FieldKind,
    Record,
    RecordSpec,
)

_FIRST, _YEAR_9999 = 1_704_067_200, 253_402_300_799
_TIMES = (0, _FIRST, _FIRST + 645, _FIRST + 43_200, 1_709_164_800, _YEAR_9999)
_PREFIXES: Mapping[FieldKind, str] = {"warehouse": "WH", "sku": "SKU", "entity": "E", "node": "N"}


def make_record(benchmark: BenchmarkName, name: str, **values: Any) -> dict[str, Any]:
    """Return a record with its keys in the schema's order; pass the field ``from`` as ``from_``."""
    fields = {key.rstrip("_"): value for key, value in values.items()}
    (spec,) = [spec for spec in SCHEMAS[benchmark] if spec.name == name]
    fields |= spec.fixed
    assert fields.keys() == {field_spec.key for field_spec in spec.fields}
    return {field_spec.key: fields[field_spec.key] for field_spec in spec.fields}


def a_value(kind: FieldKind, draw: random.Random) -> Any:
    """Draw a possible value, the odd ones often: midnight, leap day, none, one, five digits."""
    match kind:
        case "time":
            return draw.choice((*_TIMES, _FIRST + draw.randrange(10**8)))
        case "integer":
            return draw.choice((0, 1, -1, -(10**6), draw.randint(-100, 100)))
        case "number":
            return draw.choice((0.5, 0.75, 1.25, 1.5, 2.0, 1.0, 0.1, 1e-07, 3, draw.random()))
        case "attribute":
            return draw.choice([*DOMAINS])
        case _:
            return f"{_PREFIXES[kind]}-{draw.choice((0, 7, 9999, 10_000, draw.randrange(999))):04d}"


def a_record(benchmark: BenchmarkName, spec: RecordSpec, draw: random.Random) -> Record:
    """Draw a record of one type."""
    values: dict[str, Any] = {}
    attribute = ""
    for field in spec.fields:
        if field.kind == "value":
            values[field.key] = draw.choice(DOMAINS[attribute])
        elif field.key not in spec.fixed:
            values[field.key] = a_value(field.kind, draw)
            if field.kind == "attribute":
                attribute = values[field.key]
    if spec.name == "eq":
        values["a2"] = values["a1"]
    given = {"from_" if key == "from" else key: value for key, value in values.items()}
    return make_record(benchmark, spec.name, **given)


def some_data(benchmark: BenchmarkName, draw: random.Random, records: int) -> Benchmark:
    """Draw that many records, after one of each type."""
    specs = [*SCHEMAS[benchmark], *draw.choices(SCHEMAS[benchmark], k=records)]
    drawn = tuple(a_record(benchmark, spec, draw) for spec in specs)
    return Benchmark(benchmark, draw.randrange(1000), {}, drawn, ())
