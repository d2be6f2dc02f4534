"""The Dagster home of command-line runs, so that `contextcliff ui` shows them.

A persistent instance costs about 2.5 s more than an ephemeral one for a whole profile (measured: 10
assets, 20 partitions twice, two busy cores: 2.9 s against 0.6 s), worth it to see the runs in the
UI.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.cli.shell import require_address_space
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.defs.home import COMMAND_LINE as COMMAND_LINE
from contextcliff_dagster.defs.home import LINKED
from contextcliff_dagster.defs.home import dagster_home as dagster_home
from contextcliff_dagster.defs.home import shipped as shipped
from contextcliff_dagster.private_files import (
    hide_from_others,
    make_folder,
    private_umask,
    share_with_group,
)
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    import dagster as dg


_READY = ".initialised"


def prepare_home(store: Store) -> Path:
    """Create the home, with our dagster.yaml if it lacks one, and set ``DAGSTER_HOME`` to it.

    Raises:
        StoreError: the folder cannot be written.
    """
    home = dagster_home(store)
    ours = not os.environ.get("DAGSTER_HOME")
    atexit.register(share_with_group, home)
    writable = "point --store or CONTEXTCLIFF_HOME at a writable folder"
    with _as_store_error(home, writable), private_umask():
        make_folder(home)
        if ours:
            for name in ("history", "schedules", "storage"):
                make_folder(home / name)
            # Files of runs follow the umask. The checkout's own home stays readable for all.
            homes = (home,) if home.parent == store.database_dir else ()
            for folder in (*homes, *(path for path in home.iterdir() if path.is_dir())):
                hide_from_others(folder)
        config = home / "dagster.yaml"
        if ours and not config.is_file():
            temporary = home / f".dagster.yaml.{os.getpid()}"
            shutil.copyfile(shipped("dagster.yaml"), temporary)
            temporary.replace(config)
        if not os.access(home, os.W_OK):
            raise PermissionError(13, "Permission denied", str(home))
    os.environ["DAGSTER_HOME"] = str(home)
    if ours:
        os.environ[LINKED] = "1"
    return home


def is_home_used(store: Store) -> bool:
    """Return whether Dagster has recorded anything for the store."""
    return bool(os.environ.get("DAGSTER_HOME")) or (dagster_home(store) / _READY).exists()


def open_instance(store: Store) -> dg.DagsterInstance:
    """Open the Dagster instance of the store's home; the first process initialises it.

    Two processes that use a new SQLite home at the same moment corrupt it, so the first use
    happens under a lock, and a marker file records it.

    Raises:
        StoreError: the folder cannot be written.
    """
    report_step("starting Dagster")
    import dagster as dg

    from contextcliff_dagster.defs.dagster_internals import (
        databases_kept_open,
        migrations_read_once,
        runs_shown_in_timeline,
    )

    require_address_space()
    migrations_read_once()
    home = prepare_home(store)
    databases_kept_open()
    ready = home / _READY
    if ready.exists():
        instance = dg.DagsterInstance.get()
        runs_shown_in_timeline(instance)
        return instance
    advice = "free some space or point --store at a writable folder"
    with (
        _as_store_error(home, advice),
        private_umask(),
        (home / ".initialising").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        instance = dg.DagsterInstance.get()
        if not ready.exists():
            # Each of the three storages creates its tables on first use.
            instance.get_runs_count()
            instance.all_asset_keys()
            instance.all_instigator_state()
            ready.touch()
        runs_shown_in_timeline(instance)
        return instance


@contextmanager
def _as_store_error(home: Path, advice: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Cannot write {home} ({error.strerror}), where Dagster keeps its runs; {advice}."
        ) from error
