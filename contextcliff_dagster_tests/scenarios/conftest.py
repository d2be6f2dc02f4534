"""The tiny study and the ledgers of `support`, for the tests of this folder."""

from contextcliff_dagster_tests.support.ledgers import (
    ledger,
    ledger_at,
    postgres,
    postgres_server,
)
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
    "postgres",
    "postgres_server",
    "prepared",
    "run",
    "store",
    "study",
    "unrecorded",
]
