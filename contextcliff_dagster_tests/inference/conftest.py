"""The ledgers of `support.ledgers`, for the tests of this folder."""

from contextcliff_dagster_tests.support.ledgers import (
    ledger,
    ledger_at,
    postgres,
    postgres_server,
    sqlite_ledger,
)

__all__ = ["ledger", "ledger_at", "postgres", "postgres_server", "sqlite_ledger"]
