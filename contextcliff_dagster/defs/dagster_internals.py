"""Uses of private Dagster APIs, each with its reason and the condition for removing it.

Belongs here: names from `dagster._*`, which a minor release may move. The only other file that
imports such names is `cli/webserver/services.py`, which runs in its own process.
Does not belong here: anything that `import dagster as dg` offers.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The shape of an executor's settings file is checked when definitions load, before a run starts.
# Goes when an ExecutorDefinition validates a configuration by itself.
from dagster._config import resolve_to_config_type, validate_config

# A table written with its data version and its inputs' must also name the input's event, or Dagster
# compares events instead of versions. Goes when AssetMaterialization takes input versions.
from dagster._core.definitions.data_version import NULL_EVENT_POINTER

# The mark of an output whose events are logged already: each finished bin logs its own, so that a
# crash keeps it. Goes when a step may log its materializations and also end with an output.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

# An event of the executor itself (a step waits for a device). Goes when `dagster` exports it.
from dagster._core.events import EngineEventData

# How a backfill that is over is marked. Goes when `dagster` says it of a backfill.
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES

# A slot of a pool for a part of a step. Goes when a step may take and free slots itself.
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

# To give a step of a dead Celery worker to another one. Go when dagster_celery looks after its
# workers.
from dagster._core.execution.plan.objects import StepFailureData, StepRetryData

# An executor's `retries`, as Dagster's own executors take them. Goes when `dagster` exports them.
from dagster._core.execution.retries import RetryMode, get_retries_config

# To start each step by a launcher of our own, as Dagster's executors for Kubernetes and Docker do.
# Go when `dagster` exports them.
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)

# The runs that are not over. Goes when DagsterRunStatus says which of its members those are.
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

# Names of the tags that name a run's partitions, its backfill and the code server that started it,
# and of the one that says whether a failed run is tried again. Go when `dagster` exports them.
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    BACKFILL_ID_TAG,
    GRPC_INFO_TAG,
    PARTITION_NAME_TAG,
    WILL_RETRY_TAG,
)

# The error of the step of a dead Celery worker, as above.
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

# Ticks of a schedule in its time zone, as the daemon counts them. Goes when ScheduleDefinition
# lists its ticks.
from dagster._utils.schedules import cron_string_iterator

if TYPE_CHECKING:
    import dagster as dg
    from sqlalchemy import Engine

__all__ = [
    "ASSET_PARTITION_RANGE_END_TAG",
    "ASSET_PARTITION_RANGE_START_TAG",
    "BACKFILL_ID_TAG",
    "BULK_ACTION_TERMINAL_STATUSES",
    "GRPC_INFO_TAG",
    "NOT_FINISHED_STATUSES",
    "NULL_EVENT_POINTER",
    "PARTITION_NAME_TAG",
    "SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION",
    "WILL_RETRY_TAG",
    "CheckStepHealthResult",
    "EngineEventData",
    "InstanceConcurrencyContext",
    "RetryMode",
    "SerializableErrorInfo",
    "StepDelegatingExecutor",
    "StepFailureData",
    "StepHandler",
    "StepHandlerContext",
    "StepRetryData",
    "cron_string_iterator",
    "databases_kept_open",
    "get_retries_config",
    "migrations_read_once",
    "output_to_terminal",
    "resolve_to_config_type",
    "runs_shown_in_timeline",
    "submit_celery_step",
    "validate_config",
]


def submit_celery_step(*arguments: Any) -> Any:
    """Submit a step as a Celery task; return its result. Goes with `StepRetryData`."""
    from dagster_celery.executor import _submit_task

    return _submit_task(*arguments)


CODE_LOCATION = "contextcliff_dagster"
"""Name of the code location in workspace.yaml and in [tool.dg] of pyproject.toml."""


@contextmanager
def output_to_terminal() -> Iterator[None]:
    """Within the block, send the output of steps to the terminal instead of to files of the run.

    Dagster has four processes per run copy these files to the terminal. These cost 24 MB, lag,
    lose last lines, and print tracebacks at Ctrl-C. Goes when `execute_in_process` has an option
    for that.
    """
    from dagster._core.execution import compute_logs

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    @contextmanager
    def as_it_is(*_: Any) -> Iterator[None]:
        yield

    before = compute_logs.tail_to_stream, compute_logs.redirect_to_file
    compute_logs.tail_to_stream = as_it_is  # type: ignore[assignment]
    compute_logs.redirect_to_file = as_it_is  # type: ignore[assignment]
    try:
        yield
    finally:
        compute_logs.tail_to_stream, compute_logs.redirect_to_file = before


def runs_shown_in_timeline(instance: dg.DagsterInstance) -> None:
    """Attribute runs that this process executes from now on to the code location.

    The UI's timeline and job pages omit runs without a code location. The daemon is kept from
    retrying these runs, because their user sees the error and decides. Goes when
    `execute_in_process` takes a code location.
    """
    from dagster._core.remote_origin import (
        RegisteredCodeLocationOrigin,
        RemoteJobOrigin,
        RemoteRepositoryOrigin,
    )

    location = RegisteredCodeLocationOrigin(CODE_LOCATION)
    repository = RemoteRepositoryOrigin(location, "__repository__")
    create: Any = instance.create_run_for_job

    def create_run_for_job(job_def: dg.JobDefinition, **more: Any) -> dg.DagsterRun:
        more["tags"] = {**(more.get("tags") or {}), "dagster/max_retries": "0"}
        more["remote_job_origin"] = RemoteJobOrigin(repository, job_def.name)
        run: dg.DagsterRun = create(job_def=job_def, **more)
        return run

    instance.create_run_for_job = create_run_for_job  # type: ignore[assignment,method-assign]


def migrations_read_once() -> None:
    """Make Alembic read the folder of Dagster's migrations only once per process.

    For each SQLite file (three in a new home, one per run) it reads 90 scripts twice to record the
    newest one, which takes half a CPU second of a first run. Goes when Dagster caches them.
    """
    from alembic.script import ScriptDirectory

    read: Any = ScriptDirectory.from_config
    if hasattr(read, "known"):
        return
    known: dict[str | None, ScriptDirectory] = {}

    def from_config(config: Any) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    from_config.known = known  # type: ignore[attr-defined]
    ScriptDirectory.from_config = from_config  # type: ignore[method-assign]


_MOST_DATABASES = 8
"""Maximum number of open database files: a home has three, and each run one."""

_engines: dict[tuple[Any, ...], Engine] = {}
_of_parent: list[Engine] = []
_engines_lock = threading.Lock()


def databases_kept_open() -> None:
    """Keep Dagster's SQLite files open between its statements from now on.

    Dagster creates an engine and a connection per statement, so that each statement is recompiled
    and the write-ahead log is emptied 250 times per run: most of a CPU second. Commits still reach
    the disk. Goes when Dagster keeps its engines.
    """
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage

    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        module.create_engine = _kept_engine  # type: ignore[attr-defined]
    atexit.unregister(close_databases)
    atexit.register(close_databases)


def close_databases() -> None:
    """Close the database connections that are not in use."""
    with _engines_lock:
        for engine in _engines.values():
            engine.pool.dispose()
        _engines.clear()


def _kept_engine(url: str, **settings: Any) -> Engine:
    """Return the shared engine for an existing file, or a new unshared one if no file exists."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.pool import QueuePool

    try:
        file = Path(make_url(url).database or "").stat()
    except OSError:
        return create_engine(url, **settings)
    key = (url, file.st_dev, file.st_ino)
    with _engines_lock:
        engine = _engines.pop(key, None)
        if engine is None:
            if len(_engines) == _MOST_DATABASES:
                _engines.pop(next(iter(_engines))).pool.dispose()
            settings |= {"poolclass": QueuePool, "pool_size": 1, "max_overflow": -1}
            engine = create_engine(url, **settings)
            # Dagster disposes of an engine after each use.
            engine.dispose = lambda close=True: None  # type: ignore[method-assign]
        _engines[key] = engine
        return engine


def _forget_in_child() -> None:
    """Forget all engines, because a forked child must neither use nor close SQLite connections."""
    global _engines_lock
    _engines_lock = threading.Lock()
    _of_parent.extend(_engines.values())
    _engines.clear()


os.register_at_fork(after_in_child=_forget_in_child)
