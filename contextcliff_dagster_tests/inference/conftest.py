"""A call ledger of the running test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.inference.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "state.db") as opened:
        yield opened
