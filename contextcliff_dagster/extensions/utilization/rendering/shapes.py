"""The types of record as programs need them: found by their values, checked, renamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record
from contextcliff_dagster.extensions.utilization.benchmarks.schema import (
    DOMAINS,
    SCHEMAS,
    FieldKind,
    FieldSpec,
)
from contextcliff_dagster.extensions.utilization.rendering.formats import Verbosity
from contextcliff_dagster.extensions.utilization.rendering.words import LAST_SECOND

_LARGEST = 2**53  # whole numbers beyond are not all told apart as floating point
_PREFIXES: Mapping[FieldKind, str] = {"warehouse": "WH", "sku": "SKU", "entity": "E", "node": "N"}


class Shape(NamedTuple):
    """One type of record.

    ``tests``: what the value of each key must be; ``values``: pairs of keys, of an attribute and
    of its value.
    """

    name: str
    keys: tuple[str, ...]
    kinds: tuple[FieldKind, ...]
    tests: tuple[tuple[str, Callable[[Any], bool]], ...]
    values: tuple[tuple[str, str], ...]


def written_key(field: FieldSpec, verbosity: Verbosity) -> str:
    """Return the key of ``field`` in the structured formats."""
    match verbosity:
        case "standard":
            return field.key
        case "terse":
            return field.terse
        case "descriptive":
            return field.descriptive


def _identifies(prefix: str) -> Callable[[Any], bool]:
    identifier = re.compile(rf"{prefix}-(?:\d{{4}}|[1-9]\d{{4,}})")

    @lru_cache(65_536)
    def test(text: object) -> bool:
        return isinstance(text, str) and identifier.fullmatch(text) is not None

    return test


def _is_integer(value: object) -> bool:
    return type(value) is int


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value <= LAST_SECOND


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


_TESTS: Mapping[FieldKind, Callable[[Any], bool]] = {
    "time": _is_time,
    "integer": _is_integer,
    "number": _is_number,
    "attribute": DOMAINS.__contains__,
    **{kind: _identifies(prefix) for kind, prefix in _PREFIXES.items()},
}


@lru_cache(8)
def shapes(benchmark: BenchmarkName) -> Mapping[tuple[str | None, str | None], Shape]:
    """Return the types of record by their ``type`` and ``action``."""
    found = {}
    for spec in SCHEMAS[benchmark]:
        fields = spec.fields
        shape = Shape(
            spec.name,
            tuple(one.key for one in fields),
            tuple(one.kind for one in fields),
            tuple((one.key, _TESTS[one.kind]) for one in fields if one.kind in _TESTS),
            tuple(
                (attribute.key, value.key)
                for attribute, value in pairwise(fields)
                if value.kind == "value"
            ),
        )
        found[spec.fixed.get("type"), spec.fixed.get("action")] = shape
    return found


def shape_of(benchmark: BenchmarkName, record: Record) -> Shape:
    """Return the type of a valid ``record``.

    Raises:
        ValueError: it is of none, a field is missing or unknown, or holds an impossible value.
    """
    shape = shapes(benchmark).get((record.get("type"), record.get("action")))
    if shape is None:
        raise ValueError(f"no record of the {benchmark} benchmark is of this type")
    if len(record) != len(shape.keys) or not all(key in record for key in shape.keys):
        raise ValueError(f"the fields of a record of type {shape.name} are {', '.join(shape.keys)}")
    for key, test in shape.tests:
        if not test(record[key]):
            raise ValueError(f"{key} cannot be {record[key]!r}")
    for attribute, value in shape.values:
        domain, found = DOMAINS[record[attribute]], record[value]
        if found not in domain or type(found) is not type(domain[0]):
            raise ValueError(f"{record[attribute]} cannot be {found!r}")
    return shape
