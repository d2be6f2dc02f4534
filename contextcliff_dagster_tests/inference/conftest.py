"""A call ledger of the running test's own, in SQLite and in PostgreSQL."""

from contextcliff_dagster_tests.support.ledgers import (
    ledger,
    ledger_at,
    postgres,
    postgres_server,
)

__all__ = ["ledger", "ledger_at", "postgres", "postgres_server"]
