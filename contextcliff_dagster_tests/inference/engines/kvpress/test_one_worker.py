"""One worker for all policies and budgets of a model, by real processes and a real ledger."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.inference.devices.leases import FOLDER_VARIABLE
from contextcliff_dagster.inference.engines.kvpress.worker_process import WorkerProcess
from contextcliff_dagster.inference.execution.measure import engines_kept
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster_tests.support.kv_engine import entry
from contextcliff_dagster_tests.support.records.measured import rows_of, run

pytestmark = [pytest.mark.kv, pytest.mark.timeout(900)]
VARIANTS = [("snapkv", 0.1), ("snapkv", 0.8), ("knorm", 0.1)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Process ids of the workers that were started; all have ended after the test."""
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "store"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    pids: list[int] = []
    start = WorkerProcess.start

    async def noted(self: WorkerProcess) -> str:
        device = await start(self)
        assert self.pid
        pids.append(self.pid)
        return device

    monkeypatch.setattr(WorkerProcess, "start", noted)
    yield pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "state.db") as opened:
        yield opened


def variants(**changes: object) -> list[ModelEntry]:
    return [
        entry(policy, budget, **{"name": f"m+{policy}@{budget}", **changes})
        for policy, budget in VARIANTS
    ]


def answers(ledger: Ledger, models: list[ModelEntry]) -> list[list[str]]:
    return [[row["raw_output"] for row in rows_of(ledger, model=model.name)] for model in models]


def test_budgets_and_policies_of_a_model_start_one_worker(
    ledger: Ledger, started: list[int]
) -> None:
    models = variants()
    with engines_kept():
        for model in models:
            assert run(ledger, model).sent == 18
    assert len(started) == 1
    together = answers(ledger, models)
    assert run(ledger, models[-1], campaign="apart").sent == 18
    assert len(set(started)) == 2
    apart = rows_of(ledger, model=models[-1].name, campaign="apart")
    assert together[-1] == [row["raw_output"] for row in apart]
    assert together[0] != together[1] != together[2], "no policy changed an answer"


def test_a_worker_killed_between_two_budgets_loses_nothing(
    ledger: Ledger, started: list[int]
) -> None:
    models = variants()[:2]
    with engines_kept():
        for model in models:
            assert run(ledger, model).sent == 18
            os.kill(started[-1], signal.SIGKILL)
    assert len(set(started)) == len(models)
    stats = ledger.stats()
    assert stats["answers"] == 18 * len(models)
    # Only a call that was sent before the death was noticed is sent twice.
    assert stats["attempts"] < 18 * len(models) + len(models)


def test_other_settings_have_a_worker_of_their_own(ledger: Ledger, started: list[int]) -> None:
    one, *_ = variants()
    other = variants(name="long", model_id="reference-long")[1]
    with engines_kept():
        run(ledger, one, n=1)
        run(ledger, other, n=1)
        assert len(started) == 2
        with pytest.raises(ProcessLookupError):
            os.kill(started[0], 0)
