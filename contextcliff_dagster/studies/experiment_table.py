"""The experiments there are, by name: one line each, loaded when a study asks for it.

The table lies in this room because a study file has a key per experiment, which is checked when the
file is read. Experiments themselves lie above (`experiments`), so they are named by address, as
engines and corpora are; a package of one's own adds some by entry points of the group
``contextcliff.experiments``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from contextcliff_dagster.contracts import StudyError

ENTRY_POINT_GROUP = "contextcliff.experiments"

EXPERIMENTS = {
    "length_profile": "contextcliff_dagster.experiments.length_profile.experiment:LENGTH_PROFILE",
    "controls": "contextcliff_dagster.experiments.controls.experiment:CONTROLS_EXPERIMENT",
}
"""Name -> address, in the order in which they are asked. The name is the key in a study file."""


def experiment_names() -> tuple[str, ...]:
    """Names of all experiments: ours first, then those of installed packages."""
    return (*EXPERIMENTS, *sorted(_installed().keys() - EXPERIMENTS.keys()))


def load_experiment(name: str) -> Any:
    """Return the experiment called ``name`` (`experiments.common.experiment.Experiment`).

    Raises:
        StudyError: there is none, or the package that brings it cannot be loaded.
    """
    if name in EXPERIMENTS:
        module, _, attribute = EXPERIMENTS[name].partition(":")
        return getattr(import_module(module), attribute)
    if name not in _installed():
        raise StudyError(
            f"There is no experiment {name!r}; there are {', '.join(experiment_names())}."
        )
    try:
        return _installed()[name].load()
    except Exception as error:  # a package of somebody else's
        raise StudyError(
            f"Experiment {name!r} cannot be loaded ({type(error).__name__}: {error}); reinstall or "
            "remove the package that brings it."
        ) from error


@cache
def _installed() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
