"""A call's outcome as a row of the table ``results``, and the row's checksum."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from contextcliff_dagster.inference.requests.outcome import Outcome
from contextcliff_dagster.inference.requests.recipe import stable_hash

COLUMNS = tuple(field.name for field in fields(Outcome))
"""The columns of an outcome; a row has ``call_key``, ``checksum`` and ``pruned_at`` as well."""
_EXTRA = COLUMNS.index("extra")
_AT_ONCE = 500


ANSWERED = "(coalesce(r.call_key, i.call_key) IS NOT NULL)"
"""Whether `joined` has found an answer."""


def joined(calls: str = "c") -> str:
    """Joins of ``calls`` (or attempts) with their answers, ``r`` measured here, ``i`` imported for
    the study. Measuring reads ``results`` alone: what an archive says was not measured here."""
    return (
        f" LEFT JOIN results r ON r.call_key = {calls}.call_key LEFT JOIN imported_results i"
        f" ON i.call_key = {calls}.call_key AND i.study = {calls}.study AND"
        " (r.call_key IS NULL OR r.study <> i.study OR r.pruned_at IS NOT NULL)"
    )


def either(name: str) -> str:
    """The column ``name`` of the answer that `joined` has found."""
    return f"CASE WHEN i.call_key IS NULL THEN r.{name} ELSE i.{name} END"


def to_row(outcome: Outcome) -> dict[str, Any]:
    """Return column -> value; ``extra``, where there is any, as JSON text."""
    row = {name: getattr(outcome, name) for name in COLUMNS}
    extra = row["extra"]
    row["extra"] = json.dumps(dict(extra), ensure_ascii=False, sort_keys=True) if extra else None
    return row


def from_row(values: Sequence[Any]) -> Outcome:
    """Return the outcome of values in the order of `COLUMNS`."""
    outcome = Outcome(*values)
    return replace(outcome, extra=json.loads(values[_EXTRA])) if values[_EXTRA] else outcome


def checksum(call_key: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of an answer and of all that is noted with it, under its call's key.

    Empty columns are left out: a column that a later version adds leaves the checksums of earlier
    rows as they are. Numbers count as floating point, -0.0 as 0.0: a column may
    give 3.0 back for 3.
    """
    values = {
        name: float(value) + 0.0 if isinstance(value, int | float) else value
        for name, value in row.items()
        if value is not None and value == value  # SQLite keeps NaN as NULL
    }
    return stable_hash([call_key, values])


def computed_checksums(
    read: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
    names: Sequence[str] = COLUMNS,
    table: str = "results",
) -> Iterator[tuple[str, str | None, str]]:
    """Yield key, noted checksum and the checksum of the columns ``names`` of each answer.

    ``read`` gives the rows of a query; answers that were pruned are left out.
    """
    key = ("call_key", "study") if table == "imported_results" else ("call_key",)
    columns, marks = ", ".join(key), ", ".join("?" * len(key))
    last: Sequence[Any] = [""] * len(key)
    while rows := read(
        f"SELECT {columns}, checksum, {', '.join(names)} FROM {table}"
        f" WHERE ({columns}) > ({marks}) AND pruned_at IS NULL ORDER BY {columns} LIMIT ?",
        (*last, _AT_ONCE),
    ):
        for row in rows:
            last, (noted, *values) = row[: len(key)], row[len(key) :]
            yield last[0], noted, checksum(last[0], dict(zip(names, values, strict=True)))
