"""Measuring does the same whatever the database; what differs is tested with the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def ledger_at(tmp_path: Path) -> Path:
    """Where a ledger may be made; nothing is there yet."""
    return tmp_path / "state.db"
