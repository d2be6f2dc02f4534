"""The Dagster home of a store, and the tag value of command-line runs."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.store import PACKAGE, Store, checkout_root

if TYPE_CHECKING:
    import dagster as dg

COMMAND_LINE = "command line"
"""The value of the tag ``contextcliff/cause`` for runs from the command line."""

PLACE_TAG = "contextcliff/place"
"""Tag with the place that a run's models share; the run queue limits runs per place."""
LINKED = "CONTEXTCLIFF_REPORT_LINKS"
"""Variable that is set where the UI is `contextcliff ui`, which serves reports."""
_WARNED = "CONTEXTCLIFF_HOME_WARNED"
"""Variable that keeps child processes from repeating the warning."""


def shipped(name: str) -> Path:
    """Return ``dagster.yaml`` or ``workspace.yaml`` of the package or the checkout."""
    installed = PACKAGE / name
    if installed.is_file():
        return installed
    folder = "dagster_home" if name == "dagster.yaml" else "."
    return PACKAGE.parent / folder / name


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


def missing_settings(instance: dg.DagsterInstance) -> str | None:
    """Return a sentence about what measuring needs and dagster.yaml lacks; None if nothing."""
    concurrency = instance.get_concurrency_config()
    queue = concurrency.run_queue_config
    limits = queue.tag_concurrency_limits or () if queue else ()
    pools, free_slots = concurrency.pool_config, "free_slots_after_run_end_seconds"
    by = pools.pool_granularity.value if pools.pool_granularity else "op"
    settings = {
        "run_monitoring": instance.run_monitoring_enabled,
        "run_retries": instance.run_retries_enabled,
        "tag_concurrency_limits of " + PLACE_TAG: PLACE_TAG in [limit["key"] for limit in limits],
        f"run_monitoring.{free_slots}": instance.run_monitoring_settings.get(free_slots),
        "concurrency.pools.default_limit": pools.default_pool_limit is not None,
        "concurrency.pools.granularity: op": by == "op",
    }
    missing = ", ".join(name for name, present in settings.items() if not present)
    example = shipped("dagster.yaml")
    return f"dagster.yaml lacks {missing}; copy the keys from {example}." if missing else None
