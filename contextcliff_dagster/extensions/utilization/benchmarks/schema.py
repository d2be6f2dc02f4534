"""The records of each benchmark: their types, fields and keys, declared once.

Renderings write by this table, parsers read by it. ``key`` is that of the design document;
``terse`` and ``descriptive`` are the keys of the other two verbosities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName

FieldKind = Literal[
    "type", "time", "warehouse", "sku", "entity", "attribute", "value", "node", "integer", "number"
]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a record; ``kind`` says how prose words it and how it is read back."""

    key: str
    kind: FieldKind
    terse: str
    descriptive: str


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """One type of record. ``fixed``: keys whose values make it that type."""

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


def _pair(name: str) -> RecordSpec:
    fields = (
        _TYPE,
        FieldSpec("e1", "entity", "e", "first_entity"),
        FieldSpec("a1", "attribute", "a", "first_attribute"),
        FieldSpec("e2", "entity", "f", "second_entity"),
        FieldSpec("a2", "attribute", "b", "second_attribute"),
    )
    return RecordSpec(name, {"type": name}, fields)


def _unary(name: str) -> RecordSpec:
    fields = (
        _TYPE,
        FieldSpec("entity", "entity", "e", "entity_identifier"),
        FieldSpec("attr", "attribute", "a", "attribute_name"),
        FieldSpec("value", "value", "v", "attribute_value"),
    )
    return RecordSpec(name, {"type": name}, fields)


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
        RecordSpec(
            "impl",
            {"type": "impl"},
            (
                _TYPE,
                FieldSpec("if_entity", "entity", "e", "condition_entity"),
                FieldSpec("if_attr", "attribute", "a", "condition_attribute"),
                FieldSpec("if_value", "value", "v", "condition_value"),
                FieldSpec("then_entity", "entity", "f", "consequence_entity"),
                FieldSpec("then_attr", "attribute", "b", "consequence_attribute"),
                FieldSpec("then_value", "value", "u", "consequence_value"),
            ),
        ),
        _pair("mut"),
    ),
    "network": (
        RecordSpec(
            "node",
            {"type": "node"},
            (_TYPE, FieldSpec("id", "node", "i", "node_identifier")),
        ),
        RecordSpec(
            "edge",
            {"type": "edge"},
            (_TYPE, _FROM, _TO, FieldSpec("weight", "integer", "w", "initial_weight")),
        ),
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
"""What a question may ask, and its arguments in `data.Question.about`; ``at`` None is now."""

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

They come in pairs with the same values: ``mut`` says that two different attributes are equal, which
those of different domains never are. Records write the attribute's name, as prose and the question
do, so that a reader of one format need not translate what a reader of the other is given.
"""


def make_record(benchmark: BenchmarkName, name: str, **values: Any) -> dict[str, Any]:
    """Return a record of type ``name``, its keys in the schema's order.

    ``from`` is a keyword: it is given as ``from_``.

    Raises:
        ValueError: a field is missing, unknown, or the type is.
    """
    given = {key.rstrip("_"): value for key, value in values.items()}
    for spec in SCHEMAS[benchmark]:
        if spec.name == name:
            given |= spec.fixed
            if given.keys() != {one.key for one in spec.fields}:
                raise ValueError(f"fields of {name}: {sorted(given)}")
            return {one.key: given[one.key] for one in spec.fields}
    raise ValueError(f"no record type {name!r} of the {benchmark} benchmark")
