"""Dagster's own records in memory: its SQLite files take longer than what most tests are about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    import dagster as dg

_last: dict[Path, dg.DagsterInstance] = {}
"""The instance of the home that was used last: a test's commands share their runs."""


@contextmanager
def runs_in_memory() -> Iterator[None]:
    """While open, the instance of ``DAGSTER_HOME`` is an ephemeral one; processes see nothing."""
    import dagster as dg

    fresh: set[Path] = set()

    def get() -> dg.DagsterInstance:
        home = Path(os.environ["DAGSTER_HOME"])
        if not (home / ".initialised").exists():
            fresh.add(home)
        if home not in _last:
            for instance in _last.values():
                instance.dispose()
            _last.clear()
            _last[home] = dg.DagsterInstance.ephemeral()
            # It has no storage of schedules to ask.
            _last[home].all_instigator_state = list  # type: ignore[method-assign, assignment]
        return _last[home]

    with mock.patch.object(dg.DagsterInstance, "get", get):
        try:
            yield
        finally:
            # A process that comes next finds a home that nobody has used yet.
            for home in fresh:
                (home / ".initialised").unlink(missing_ok=True)
