"""The form of a reply, for engines that can write nothing else."""

from __future__ import annotations

from typing import Any

from contextcliff_dagster.experiments.visibility.tasks.parameters import Number, Parameter
from contextcliff_dagster.experiments.visibility.tasks.task import Task

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def reply_schema(task: Task) -> dict[str, Any]:
    """Return the JSON Schema of an object with every parameter of ``task`` and nothing else.

    It has types only: bounds and choices are an axis, and a schema may not give them away.
    """
    return {
        "type": "object",
        "properties": {one.name: {"type": _type(one)} for one in task.space.parameters},
        "required": list(task.space.names),
        "additionalProperties": False,
    }


def _type(parameter: Parameter) -> str | list[str]:
    if isinstance(parameter, Number):
        return "integer" if parameter.integer else "number"
    names = sorted({_TYPES[type(choice)] for choice in parameter.choices})
    return names[0] if len(names) == 1 else names
