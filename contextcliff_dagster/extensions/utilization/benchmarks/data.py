"""Data model of the benchmarks: seeded records with declared fields, and questions with answers.

The record types, fields and keys of each benchmark are declared once, in a table that renderers and
parsers share. ``key`` is the key in the design document; ``terse`` and ``descriptive`` are the keys
of the other two verbosities.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, MutableSet, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

One = TypeVar("One")


class RetryError(Exception):
    """Raised when the current random draws give no good question; other draws may."""


class Draws:
    """A random stream seeded by a name in parts, such as ``Draws("network", 3)``.

    Uses only `random.Random.random`, the one method whose sequence Python guarantees.
    """

    def __init__(self, *name: object) -> None:
        self.random = random.Random("/".join(map(str, name))).random

    def below(self, count: int) -> int:
        """Return a random integer from 0 to ``count`` - 1."""
        return int(self.random() * count)

    def between(self, low: int, high: int) -> int:
        """Return a random integer from ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, options: Sequence[One]) -> One:
        """Return a random element of ``options``."""
        return options[int(self.random() * len(options))]

    def shuffled(self, options: Sequence[One]) -> list[One]:
        """Return ``options`` in random order."""
        items = list(options)
        for last in range(len(items) - 1, 0, -1):
            swap = int(self.random() * (last + 1))
            items[last], items[swap] = items[swap], items[last]
        return items

    def spread(self, taken: MutableSet[int], count: int, start: int, stop: int) -> list[int]:
        """Return ``count`` free places in ascending order, one in each of ``count`` equal parts.

        Free places lie from ``start`` to ``stop`` - 1 and outside ``taken``; picked places are
        added to ``taken``. A part without a free place uses the nearest free one.

        Raises:
            RetryError: fewer than ``count`` places are free.
        """
        places = []
        for part in range(count):
            low = start + (stop - start) * part // count
            high = max(low + 1, start + (stop - start) * (part + 1) // count)
            place = self._free(low, high, taken)
            if place is None:
                near = (
                    candidate
                    for distance in range(stop - start)
                    for candidate in (low - distance, low + distance)
                    if start <= candidate < stop and candidate not in taken
                )
                place = next(near, None)
            if place is None:
                raise RetryError
            taken.add(place)
            places.append(place)
        return sorted(places)

    def _free(self, low: int, high: int, taken: MutableSet[int]) -> int | None:
        for _ in range(8):
            if (place := low + self.below(high - low)) not in taken:
                return place
        free = [place for place in range(low, min(high, low + 64)) if place not in taken]
        return self.pick(free) if free else None


BenchmarkName = Literal["warehouse", "constraints", "network"]
QuestionKind = Literal["lookup", "aggregate", "as_of", "chain", "flow"]
Evidence = Literal["growing", "fixed"]
"""Whether the evidence grows with the document or keeps a fixed number of records."""

BENCHMARKS: tuple[BenchmarkName, ...] = ("warehouse", "constraints", "network")
ALIASES: Mapping[str, BenchmarkName] = {"ledger": "warehouse", "constraint": "constraints"}

Record = Mapping[str, Any]
"""A record: keys in the order of its `RecordSpec`, values as in JSON.

Identifiers are strings (``WH-0042``), times are Unix seconds, quantities and weights integers.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a whole document.

    Attributes:
        kind: `lookup` needs one record, `aggregate` the sum over several, `as_of` those up to a
            time, `chain` one record to find the next, `flow` a maximum flow.
        text: the wording, the same for every format, without an instruction on the form of the
            answer.
        answer: the only right answer: an integer in digits, or a value as the records write it.
        form: whether the answer is a number or a named value.
        about: the question in machine-readable form: ``ask`` and its arguments (`ASKS`).
        evidence: ascending indices of the records needed to know the answer.
        margin: the smallest effect of missing one evidence record: for numbers the change of the
            answer, for values the number of further values that become possible. 0 means that
            some evidence record can be missed without harm.
        hops: number of records that must be found one after the other.
        choices: options for a guesser; for numbers the plausible range ``(lowest, highest)``.
    """

    kind: QuestionKind
    text: str
    answer: str
    form: Literal["number", "value"]
    about: Mapping[str, Any]
    evidence: tuple[int, ...]
    margin: float
    hops: int = 1
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The data of one document, shared by all its formats.

    ``parameters``: the sizes, named as in the design document (``num_warehouses`` ...).
    ``records``: in time order (constraints: as drawn). ``corrupted``: indices of changed records.
    """

    name: BenchmarkName
    seed: int
    parameters: Mapping[str, int]
    records: tuple[Record, ...]
    questions: tuple[Question, ...]
    evidence: Evidence = "growing"
    corrupted: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


FieldKind = Literal[
    "type", "time", "warehouse", "sku", "entity", "attribute", "value", "node", "integer", "number"
]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of a record; ``kind`` determines how prose words it and how parsers read it."""

    key: str
    kind: FieldKind
    terse: str
    descriptive: str


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """A record type; ``fixed`` holds the keys whose values identify it."""

    name: str
    fixed: Mapping[str, str]
    fields: tuple[FieldSpec, ...]


_TS = FieldSpec("ts", "time", "t", "timestamp")
_WAREHOUSE = FieldSpec("warehouse", "warehouse", "w", "warehouse_identifier")
_SKU = FieldSpec("sku", "sku", "s", "stock_keeping_unit")
_ACTION = FieldSpec("action", "type", "a", "action_performed")
_QTY = FieldSpec("qty", "integer", "q", "quantity_change")
_TYPE = FieldSpec("type", "type", "y", "record_type")
_FROM = FieldSpec("from", "node", "f", "source_node")
_TO = FieldSpec("to", "node", "o", "target_node")


def _stock(action: str, *more: FieldSpec) -> RecordSpec:
    return RecordSpec(action, {"action": action}, (_TS, _WAREHOUSE, _SKU, _ACTION, _QTY, *more))


def _event(action: str, kind: FieldKind) -> RecordSpec:
    value = FieldSpec("value", kind, "v", "event_value")
    fixed = {"type": "event", "action": action}
    return RecordSpec(action, fixed, (_TYPE, _TS, _FROM, _TO, _ACTION, value))


def _typed(name: str, *fields: FieldSpec) -> RecordSpec:
    return RecordSpec(name, {"type": name}, (_TYPE, *fields))


def _pair(name: str) -> RecordSpec:
    return _typed(
        name,
        FieldSpec("e1", "entity", "e", "first_entity"),
        FieldSpec("a1", "attribute", "a", "first_attribute"),
        FieldSpec("e2", "entity", "f", "second_entity"),
        FieldSpec("a2", "attribute", "b", "second_attribute"),
    )


def _unary(name: str) -> RecordSpec:
    return _typed(
        name,
        FieldSpec("entity", "entity", "e", "entity_identifier"),
        FieldSpec("attr", "attribute", "a", "attribute_name"),
        FieldSpec("value", "value", "v", "attribute_value"),
    )


SCHEMAS: Mapping[BenchmarkName, tuple[RecordSpec, ...]] = {
    "warehouse": (
        _stock("initial"),  # ours: the stock at the start, without which nothing can be answered
        _stock("sale"),
        _stock("restock"),
        _stock("transfer_out", FieldSpec("dest", "warehouse", "d", "destination_warehouse")),
        _stock("transfer_in", FieldSpec("source", "warehouse", "o", "source_warehouse")),
        _stock("adjustment"),
    ),
    "constraints": (
        _unary("fact"),  # ours: where a chain of constraints begins
        _pair("eq"),
        _unary("neq"),
        _typed(
            "impl",
            FieldSpec("if_entity", "entity", "e", "condition_entity"),
            FieldSpec("if_attr", "attribute", "a", "condition_attribute"),
            FieldSpec("if_value", "value", "v", "condition_value"),
            FieldSpec("then_entity", "entity", "f", "consequence_entity"),
            FieldSpec("then_attr", "attribute", "b", "consequence_attribute"),
            FieldSpec("then_value", "value", "u", "consequence_value"),
        ),
        _pair("mut"),
    ),
    "network": (
        _typed("node", FieldSpec("id", "node", "i", "node_identifier")),
        _typed("edge", _FROM, _TO, FieldSpec("weight", "integer", "w", "initial_weight")),
        _event("set", "integer"),
        _event("add", "integer"),
        _event("multiply", "number"),
    ),
}

ASKS: Mapping[str, tuple[str, ...]] = {
    # warehouse: units of one record; stock now or at a time (including it); the warehouse that a
    # chain of transfers of one SKU ends in, each the first one out of a warehouse after the last
    "units": ("warehouse", "sku", "action", "ts"),
    "stock": ("warehouse", "sku", "at"),
    "transfers": ("warehouse", "sku", "hops"),
    # constraints: the only possible value; entities of which a fact states this value
    "value": ("entity", "attr"),
    "facts": ("attr", "value"),
    # network: as the edge record says; after events up to a time (including it); of shortest paths
    # and maximum flows, with weights as lengths and as capacities
    "initial_weight": ("from", "to"),
    "weight": ("from", "to", "at"),
    "distance": ("from", "to", "at"),
    "max_flow": ("from", "to", "at"),
}
"""Question -> its arguments in `Question.about`; ``at`` None means now."""

_COLORS = ("red", "blue", "green", "yellow", "orange", "purple", "black", "white")
_SIZES = ("small", "medium", "large", "xlarge", "tiny", "huge", "micro", "mega")
_RATINGS = (1, 2, 3, 4, 5, 6, 7, 8)
_CITIES = ("Oslo", "Lima", "Cairo", "Delhi", "Kyoto", "Turin", "Perth", "Quito")
_PEOPLE = ("Ada", "Boris", "Chen", "Dalia", "Emeka", "Fatima", "Goran", "Hana")

DOMAINS: Mapping[str, tuple[str, ...] | tuple[int, ...]] = {
    "color": _COLORS,
    "accent": _COLORS,
    "size": _SIZES,
    "fit": _SIZES,
    "rating": _RATINGS,
    "grade": _RATINGS,
    "origin": _CITIES,
    "destination": _CITIES,
    "owner": _PEOPLE,
    "inspector": _PEOPLE,
}
"""Attribute -> its values. The design document names three of its ten (``attr_2`` is a rating).

Attributes come in pairs with the same domain, because ``mut`` states that two different attributes
are equal. Records use the attribute's name, as prose and questions do, so that no format requires
a translation that another format does not.
"""
