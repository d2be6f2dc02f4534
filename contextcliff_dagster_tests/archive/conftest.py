"""The servers of `support.ledgers`."""

from contextcliff_dagster_tests.support.ledgers import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
