"""A call's outcome as a row of the table ``results``, and the checksum that vouches for the row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from contextcliff_dagster.inference.requests.outcome import Outcome
from contextcliff_dagster.inference.requests.recipe import stable_hash

COLUMNS = tuple(field.name for field in fields(Outcome))
"""What a row says of an outcome; ``call_key``, ``checksum`` and ``pruned_at`` stand around it."""
_EXTRA = COLUMNS.index("extra")


def to_row(outcome: Outcome) -> dict[str, Any]:
    """Return column -> value."""
    row = {name: getattr(outcome, name) for name in COLUMNS}
    return {**row, "extra": extra_json(outcome)}


def from_row(values: Sequence[Any]) -> Outcome:
    """Return the outcome of values in the order of `COLUMNS`."""
    outcome = Outcome(*values)
    return replace(outcome, extra=json.loads(values[_EXTRA])) if values[_EXTRA] else outcome


def extra_json(outcome: Outcome) -> str | None:
    """Return what the engine measured next to the answer as JSON text; None where it did not."""
    if not outcome.extra:
        return None
    return json.dumps(dict(outcome.extra), ensure_ascii=False, sort_keys=True)


def checksum(call_key: str, row: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of an answer and of all that is noted with it, under its call's key.

    Empty columns are left out: a column that a later version adds leaves the checksums of earlier
    rows as they are. Numbers count as floating point: a column may give 3.0 back for 3.
    """
    values = {
        name: float(value) if isinstance(value, int | float) else value
        for name, value in row.items()
        if value is not None and value == value  # SQLite keeps NaN as NULL
    }
    return stable_hash([call_key, values])
