"""Extensions: experiments that other packages add, with their commands, engines and files.

Entry points of the group ``contextcliff.experiments`` declare them. An entry point whose attribute
is named ``EXTENSION`` is an `Extension`; any other is the experiment itself.
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
    """An experiment and its accessories. Addresses (``module:attribute``) are imported when used.

    Attributes:
        experiment: address of the experiment (`experiments.common.experiment.Experiment`).
        result: address of its result dataclass; None: its results are JSON objects.
        commands: command name -> its summary, and the address of the click command.
        engines: its engines (`inference.models.engine_table.EngineSpec`).
        exports: name that `contextcliff_dagster.api` re-exports -> its module.
        folder: the folder of its ``models.yaml`` and ``studies/``, if any.
        failure: why the import failed; None if it succeeded.
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
    """Return the installed extensions by experiment name.

    An extension that cannot be imported keeps its name and the reason in ``failure``.
    """
    from importlib.metadata import entry_points

    found_extensions = {}
    for point in sorted(entry_points(group=GROUP)):
        found_extensions[point.name] = Extension(experiment=point.value)
        if point.attr == _ATTRIBUTE:
            try:
                found_extensions[point.name] = point.load()
            except Exception as error:  # third-party code may raise anything
                failure = f"{type(error).__name__}: {error}"
                found_extensions[point.name] = Extension(experiment=point.value, failure=failure)
    return found_extensions


def load_address(address: str) -> Any:
    """Import and return ``module:attribute``."""
    module, _, attribute = address.partition(":")
    return getattr(import_module(module), attribute)
