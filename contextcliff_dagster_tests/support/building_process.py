"""Materializes the asset `database` in a process of its own, to be held up or killed half-way.

``python -m contextcliff_dagster_tests.support.building_process ROOT`` builds the database of the
store ROOT. It prints ``begins``, then ``half`` once the tables are written, and goes on when a line
is typed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from contextcliff_dagster.defs import database
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.experiments import sql_tables
from contextcliff_dagster_tests.support.forked_process import ForkedProcess

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def build(root: Path, **resources: object) -> dg.ExecuteInProcessResult:
    """Materialize `database` of the store ``root``; ``resources`` stand in for the default ones."""
    return dg.materialize(
        [database.database_asset([])],
        resources={**default_resources(root), **resources},
        run_config=QUIET,
    )


def started(root: Path) -> subprocess.Popen[str]:
    return ForkedProcess(
        [sys.executable, "-m", "contextcliff_dagster_tests.support.building_process", str(root)],
        env=os.environ.copy(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def main() -> None:
    whole: Callable[[], str] = sql_tables.partitions_sql

    def held_up() -> str:
        print("half", flush=True)
        sys.stdin.readline()
        return whole()

    sql_tables.partitions_sql = held_up
    print("begins", flush=True)
    build(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
