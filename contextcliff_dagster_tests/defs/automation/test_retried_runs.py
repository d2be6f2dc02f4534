"""Which failed runs Dagster tries again: those that something around them ended, no refused one."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts import BudgetError, StoreUnreachableError
from contextcliff_dagster.defs.asset_specs import RETRY_FAILED, refusing
from contextcliff_dagster_tests.support.paths import CHECKOUT


def will_retry(dagster_home: Path, end: Exception) -> bool:
    """What Dagster says of a run that a daemon had launched and that ended with ``end``."""

    @dg.op
    @refusing
    def asks() -> None:
        raise end

    @dg.job(tags=RETRY_FAILED)
    def measuring() -> None:
        asks()

    shutil.copy(CHECKOUT / "dagster_home" / "dagster.yaml", dagster_home)
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        done = measuring.execute_in_process(instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(done.run_id)
    assert run is not None
    return {"true": True, "false": False}[run.tags["dagster/will_retry"]]


@pytest.mark.parametrize(
    ("end", "again"),
    [
        (BudgetError("The budget of 1 USD is spent; raise it."), False),
        (dg.Failure("Answers are lost.", allow_retries=False), False),
        (StoreUnreachableError("The call ledger cannot be reached."), True),
        (ConnectionError("the server closed the connection"), True),
    ],
)
def test_what_would_end_the_same_way_is_not_tried_again(
    dagster_home: Path, end: Exception, again: bool
) -> None:
    assert will_retry(dagster_home, end) is again
