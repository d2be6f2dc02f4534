"""The Dagster home of a store, and the tag value of command-line runs."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.store import Store, checkout_root

COMMAND_LINE = "command line"
"""The value of the tag ``contextcliff/cause`` for runs from the command line."""

LINKED = "CONTEXTCLIFF_REPORT_LINKS"
"""Variable that is set where the UI is `contextcliff ui`, which serves reports."""
_WARNED = "CONTEXTCLIFF_HOME_WARNED"
"""Variable that keeps child processes from repeating the warning."""


def dagster_home(store: Store) -> Path:
    """Return ``DAGSTER_HOME`` if set; else the checkout's home (for its own store) or the store's.

    Raises:
        StoreError: Dagster would misread the path.
    """
    if folder := os.environ.get("DAGSTER_HOME"):
        home = Path(folder).expanduser().absolute()
        if {"?", "%"} & set(str(home)):
            raise StoreError(
                f"DAGSTER_HOME is {home}, but Dagster cannot keep its runs in a folder with '?' or "
                "'%' in its path; choose another one."
            )
        return home
    checkout = checkout_root()
    if checkout is not None and store.root.resolve() == (checkout / "data" / "store").resolve():
        return checkout / "dagster_home"
    return store.database_dir / "dagster_home"


def warn_without_home(store: Store) -> None:
    """Log a warning if ``DAGSTER_HOME`` is not set, because Dagster then forgets finished runs.

    The warning is logged only once, although `dg launch` loads the code location in four processes.
    """
    if not os.environ.get("DAGSTER_HOME") and _WARNED not in os.environ:
        os.environ[_WARNED] = "1"
        logging.getLogger("dagster.contextcliff").warning(
            "DAGSTER_HOME is not set, so Dagster forgets these runs when this process ends (what "
            "is measured stays in %s). To keep them where `contextcliff ui` shows them: export "
            "DAGSTER_HOME=%s",
            store.root,
            shlex.quote(str(dagster_home(store))),
        )
