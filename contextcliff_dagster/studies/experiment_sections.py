"""The keys of a study file that belong to experiments: found, checked, and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from contextcliff_dagster.studies.experiment_table import (
    EXPERIMENTS,
    experiment_names,
    load_experiment,
)

if TYPE_CHECKING:
    pass

Checked = TypeVar("Checked")


def check_sections(
    data: Any,
    handler: Callable[[Any], Checked],
    own: Collection[str],
    *,
    needs: Collection[str],
) -> Checked:
    """Validate a study whose keys beyond ``own`` are sections of experiments.

    All faults are reported at once, as pydantic does. A section that asks for nothing (empty) is
    dropped: a study that names it is the same as one that does not.

    Args:
        needs: keys that a study must have unless each of its experiments makes its own documents.

    Raises:
        ValidationError: a key is unknown or malformed, or one of ``needs`` is missing.
    """
    if not isinstance(data, Mapping):
        return handler(data)
    plain = {key: value for key, value in data.items() if key in own}
    errors: list[Any] = []
    sections: dict[str, Any] = {}
    needed = True
    for key in data.keys() - plain.keys():
        known = key in EXPERIMENTS or key in experiment_names()
        experiment = load_experiment(key) if known else None
        if experiment is None or experiment.section is None:
            errors.append({"type": "extra_forbidden", "loc": (key,), "input": data[key]})
            continue
        try:
            section = TypeAdapter(experiment.section).validate_python(data[key])
        except ValidationError as error:
            errors += _within(error, key)
            continue
        if section:
            sections[key] = section
            needed = needed and not experiment.makes_documents
    if needed:
        errors += [
            {"type": "missing", "loc": (key,), "input": data} for key in needs if key not in plain
        ]
    try:
        study = handler({**plain, **{key: sections[key] for key in data if key in sections}})
    except ValidationError as error:
        errors += _within(error)
    if errors:
        raise ValidationError.from_exception_data("Study", errors)
    return study


def _within(error: ValidationError, *loc: str) -> list[Any]:
    return [
        {
            "type": one["type"],
            "loc": (*loc, *one["loc"]),
            "input": one["input"],
            "ctx": one.get("ctx", {}),
        }
        for one in error.errors(include_url=False)
    ]
