"""A fifth of the requests fail, processes on one ledger are killed, and nothing is lost or hidden.

The large version is ``benchmarks/chaos.py --drive crowd``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster_tests.inference.crowd import Crowd, disturbed


@pytest.mark.slow  # a dozen processes one after the other, three at a time, and stalls of seconds
def test_faults_and_kills_of_three_processes_at_once_change_no_record(tmp_path: Path) -> None:
    crowd = Crowd(bins=2, documents=15, questions=5, kills=6, delay_ms=100, timeout_s=2.0)
    figures = disturbed(crowd, tmp_path)
    assert all(figures["claims"].values()), figures
    assert figures["maybe paid, no answer kept"] > 0, "nothing was disturbed"
    assert sum(figures["kills"].values()) == 6
