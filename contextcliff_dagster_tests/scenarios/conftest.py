"""The tiny study of `support.tiny_study` and the ledgers of `support.ledgers`."""

from contextcliff_dagster_tests.support.ledgers import ledger_at, postgres, postgres_server
from contextcliff_dagster_tests.support.measured_stores import measured
from contextcliff_dagster_tests.support.tiny_study import (
    instance,
    prepared,
    run,
    store,
    study,
    unrecorded,
)

__all__ = [
    "instance",
    "ledger_at",
    "measured",
    "postgres",
    "postgres_server",
    "prepared",
    "run",
    "store",
    "study",
    "unrecorded",
]
