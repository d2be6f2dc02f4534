"""What another room or package adds: an experiment, and all that belongs to it.

It is found by an entry point of the group ``contextcliff.experiments``. One whose attribute is
named ``EXTENSION`` is an `Extension`; any other is the experiment itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

GROUP = "contextcliff.experiments"
_ATTRIBUTE = "EXTENSION"


@dataclass(frozen=True, kw_only=True)
class Extension:
    """An experiment and what belongs to it. Addresses (``module:attribute``) load when used.

    Attributes:
        experiment: its address (`experiments.common.experiment.Experiment`).
        result: address of the dataclass of its result; None: its results are JSON objects.
        commands: command -> its summary, and the address of the click command.
        engines: its engines (`inference.models.engine_table.EngineSpec`).
        exports: name that `contextcliff_dagster.api` hands on -> its module.
        folder: where its ``models.yaml`` and its ``studies/`` lie, if it has any.
        failure: why it could not be imported; None: it was.
    """

    experiment: str
    result: str | None = None
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    engines: tuple[Any, ...] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    failure: str | None = None

    def own(self, name: str) -> Path | None:
        """Return the file or folder ``name`` in the extension's folder; None if missing."""
        path = self.folder / name if self.folder else None
        return path if path is not None and path.exists() else None


@cache
def extensions() -> Mapping[str, Extension]:
    """Return the installed extensions by the names of their experiments.

    If one cannot be imported, only its experiment's name is known; asking for it shows the reason.
    """
    from importlib.metadata import entry_points

    known = {}
    for point in sorted(entry_points(group=GROUP)):
        known[point.name] = Extension(experiment=point.value)
        if point.attr == _ATTRIBUTE:
            try:
                known[point.name] = point.load()
            except Exception as error:  # of another's package
                failure = f"{type(error).__name__}: {error}"
                known[point.name] = Extension(experiment=point.value, failure=failure)
    return known


def load_address(address: str) -> Any:
    """Import and return ``module:attribute``."""
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
