"""The tiny study of `support.tiny_study` and the ledgers of `support.ledgers`."""

from contextcliff_dagster_tests.support.ledgers import (
    ledger,
    ledger_at,
    postgres,
    postgres_server,
    sqlite_ledger,
)
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
    "ledger",
    "ledger_at",
    "measured",
    "postgres",
    "postgres_server",
    "prepared",
    "run",
    "sqlite_ledger",
    "store",
    "study",
    "unrecorded",
]
