"""A call ledger of the running test's own, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.postgres import PostgresServer, running_postgres
from contextcliff_dagster_tests.support.requirements import require

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a worker."""
    require("postgres")
    with running_postgres("contextcliff") as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """An empty database."""
    with postgres_server.fresh_database() as server:
        yield server


@pytest.fixture(params=BOTH)
def ledger_at(request: pytest.FixtureRequest, tmp_path: Path) -> Path | DatabaseUrl:
    """Where a ledger may be made; nothing is there yet."""
    if request.param == "sqlite":
        return tmp_path / "state.db"
    return DatabaseUrl(request.getfixturevalue("postgres").url)


@pytest.fixture
def ledger(ledger_at: Path | DatabaseUrl) -> Iterator[Ledger]:
    with Ledger.open(ledger_at) as opened:
        yield opened
