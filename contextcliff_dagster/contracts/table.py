"""What a declared table is: columns with types, units and descriptions, as an Arrow schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts.errors import StoreError
from contextcliff_dagster.contracts.values import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: Arrow type by name, unit, and a description for people.

    ``later``: files written before the column was declared are read with nulls in it.
    """

    name: str
    type: Literal[
        "string",
        "int64",
        "float64",
        "bool",
        "timestamp",
        "list<string>",
        "list<float64>",
        "json",
    ]
    description: str
    unit: str | None = None
    nullable: bool = True
    later: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table. ``json`` columns hold JSON text."""

    name: str
    description: str
    columns: tuple[Column, ...]

    @cache  # noqa: B019 (the few declared tables live as long as the process)
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema, descriptions and units as field metadata."""
        import pyarrow as pa

        types: dict[str, pa.DataType] = {
            "string": pa.string(),
            "int64": pa.int64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "list<string>": pa.list_(pa.string()),
            "list<float64>": pa.list_(pa.float64()),
            "json": pa.string(),
        }
        fields = [
            pa.field(
                c.name,
                types[c.type],
                nullable=c.nullable,
                metadata={"description": c.description, "unit": c.unit or ""},
            )
            for c in self.columns
        ]
        return pa.schema(
            fields,
            metadata={"contextcliff.table": self.name, "contextcliff.version": SCHEMA_VERSION},
        )

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)


def conform(rows: Sequence[Mapping[str, Any]], table: Table) -> pa.Table:
    """Rows as an Arrow table of exactly ``table``'s columns.

    Missing nullable columns become null; unknown columns and nulls in required ones are errors.

    Raises:
        StoreError: naming the table, the column and the row.
    """
    import pyarrow as pa

    known = set(table.column_names)
    for number, row in enumerate(rows):
        if extra := sorted(set(row) - known):
            raise StoreError(f"Table {table.name!r} has no column {extra[0]!r} (row {number}).")
        for column in table.columns:
            if not column.nullable and row.get(column.name) is None:
                raise StoreError(
                    f"Table {table.name!r} needs a value in column {column.name!r} (row {number})."
                )
    arrays = {name: [row.get(name) for row in rows] for name in table.column_names}
    return pa.Table.from_pydict(arrays, schema=table.arrow_schema())


def validate(data: pa.Table, table: Table, where: str) -> pa.Table:
    """``data`` in ``table``'s column order and types, or a sentence saying what ``where`` lacks.

    Raises:
        StoreError: a declared column is missing (and not ``later``) or has another type.
    """
    import pyarrow as pa

    schema = table.arrow_schema()
    present = set(data.column_names)
    for column in table.columns:
        if column.later and column.name not in present:
            field = schema.field(column.name)
            data = data.append_column(field, pa.nulls(data.num_rows, field.type))
    present = set(data.column_names)
    if missing := [name for name in schema.names if name not in present]:
        raise StoreError(
            f"{where} is not a {table.name!r} table: column {missing[0]!r} is missing; rebuild it."
        )
    try:
        data = data.select(schema.names)
        return (
            data.replace_schema_metadata(schema.metadata)
            if data.schema == schema
            else data.cast(schema)
        )
    except Exception as error:
        raise StoreError(f"{where} is not a {table.name!r} table: {error}; rebuild it.") from error
