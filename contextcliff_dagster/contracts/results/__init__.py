"""Results of the length profile as typed values: ``cliffs.json``, ``metrics.json``, comparisons.

Belongs here: the fields of a result, each with a description and a unit. Does not belong here:
file locations (``store``) and computation. ``make schemas`` writes the JSON Schemas in
``schemas/`` from ``RESULT_FILES``.
"""

# mypy: implicit-reexport
# ruff: noqa: F401 - what is imported here is what this package offers

from __future__ import annotations

from typing import Any, NamedTuple

from contextcliff_dagster.contracts.results.cliffs import Cliffs
from contextcliff_dagster.contracts.results.comparison import Comparison
from contextcliff_dagster.contracts.results.json_form import (
    NewerResultError,
    ResultError,
    from_json,
    json_schema,
    to_json,
)
from contextcliff_dagster.contracts.results.metrics import Metrics


class ResultFile(NamedTuple):
    """A kind of result file: ``<name>.json`` holds a value of type ``model``."""

    name: str
    model: type[Any]
    title: str

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the file."""
        return json_schema(self.model, self.name, self.title)


RESULT_FILES = (
    ResultFile("cliffs", Cliffs, "ContextCliff result of one model"),
    ResultFile("metrics", Metrics, "ContextCliff metrics of one model"),
    ResultFile("comparison", Comparison, "ContextCliff comparison of two measurements"),
)
