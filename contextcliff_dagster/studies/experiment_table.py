"""Table of experiments by name, each loaded when a study needs it, and of their keys in a study
file.

The table is in this package because a study file has one key per experiment, which is checked when
the file is read. The experiments are in a higher layer (`experiments`), so they are named by import
path, like engines and corpora; `extensions` and users' own packages add theirs
(`contracts.extensions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.contracts.extensions import extensions, load_address

Checked = TypeVar("Checked")

EXPERIMENTS = {
    "length_profile": "contextcliff_dagster.experiments.length_profile.experiment:LENGTH_PROFILE",
    "controls": "contextcliff_dagster.experiments.controls:CONTROLS_EXPERIMENT",
    "attention_entropy": "contextcliff_dagster.experiments.attention:ATTENTION",
}
"""Experiment name (its key in a study file) -> import path, in running order."""


def experiment_names() -> tuple[str, ...]:
    """Return the names of all experiments: the core's first, then the extensions'."""
    return (*EXPERIMENTS, *(name for name in extensions() if name not in EXPERIMENTS))


def load_experiment(name: str) -> Any:
    """Return the experiment named ``name`` (`experiments.common.experiment.Experiment`).

    Raises:
        StudyError: it is unknown, or its package cannot be loaded.
    """
    if name in EXPERIMENTS:
        return load_address(EXPERIMENTS[name])
    if name not in extensions():
        raise StudyError(
            f"There is no experiment {name!r}; there are {', '.join(experiment_names())}."
        )
    try:
        return load_address(extensions()[name].experiment)
    except Exception as error:  # a third-party package may raise anything
        raise StudyError(
            f"Experiment {name!r} cannot be loaded ({type(error).__name__}: {error}); reinstall or "
            "remove the package that brings it."
        ) from error


def check_sections(
    data: Any,
    handler: Callable[[Any], Checked],
    own: Collection[str],
    *,
    needs: Collection[str],
) -> Checked:
    """Validate a study in which every key outside ``own`` is an experiment's section.

    All errors are reported at once, as in pydantic. An empty section is dropped, because it does
    not change the study. ``needs``: keys that a study must have unless all its experiments generate
    their own documents.

    Raises:
        ValidationError: a key is unknown or malformed, or one of ``needs`` is missing.
    """
    if not isinstance(data, Mapping):
        return handler(data)
    values = {key: value for key, value in data.items() if key in own}
    errors: list[Any] = []
    sections: dict[str, Any] = {}
    needed = True
    for key in data.keys() - values.keys():
        is_experiment = key in EXPERIMENTS or key in experiment_names()
        experiment = load_experiment(key) if is_experiment else None
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
            {"type": "missing", "loc": (key,), "input": data} for key in needs if key not in values
        ]
    try:
        study = handler({**values, **{key: sections[key] for key in data if key in sections}})
    except ValidationError as error:
        errors += _within(error)
    if errors:
        raise ValidationError.from_exception_data("Study", errors)
    return study


def _within(error: ValidationError, *loc: str) -> list[Any]:
    errors = error.errors(include_url=False)
    return [{"ctx": {}, **item, "loc": (*loc, *item["loc"])} for item in errors]
