"""A fifth of the requests fail, processes on one ledger are killed, and nothing is lost or hidden.

The large version is ``benchmarks/chaos.py --drive crowd``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster_tests.support.crowd import Crowd, disturbed
from contextcliff_dagster_tests.support.postgres import running_postgres

CROWD = Crowd(bins=2, documents=15, questions=5, kills=6, delay_ms=100, timeout_s=2.0)


def test_faults_and_kills_of_three_processes_at_once_change_no_record(tmp_path: Path) -> None:
    _insist(disturbed(CROWD, tmp_path))


@pytest.mark.postgres
def test_a_ledger_in_postgresql_stands_the_same(tmp_path: Path) -> None:
    with running_postgres() as server:
        _insist(disturbed(CROWD, tmp_path, ledger=server.url))


def _insist(figures: dict[str, Any]) -> None:
    assert all(figures["claims"].values()), figures
    assert figures["rerun_requests"] == 0
    assert figures["maybe paid, no answer kept"] > 0, "nothing was disturbed"
    assert sum(figures["kills"].values()) == 6
