"""A tabulation that is stopped, or made by two processes: nothing that was trained is lost."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.kept_landscapes import ground_named, work_left
from contextcliff_dagster.extensions.visibility.landscape import COARSE
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings
from contextcliff_dagster.extensions.visibility.section import VisibilitySection
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, Task
from contextcliff_dagster.store import Store

SECTION = VisibilitySection.model_validate({"benchmarks": ["toy"], "landscape": "coarse"})
ROWS = COARSE[0] * COARSE[1]


def _tabulate(root: Path, log: Path, killed_at: int | None, barrier: Barrier | None) -> None:
    """Tabulate in a process of its own; every evaluation is a byte in ``log``."""

    def evaluate(self: Task, data: Any, split: Any, config: Any, seed: int) -> Evaluation:
        with log.open("ab") as file:
            file.write(b".")
        if log.stat().st_size == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        score = float(self.space.positions(config)[0]) + 0.001 * seed
        return Evaluation(score, score)

    Task.evaluate = evaluate  # type: ignore[method-assign]
    if barrier is not None:
        barrier.wait()
    ground_named("toy", Store(root), SECTION)


def _process(*args: object) -> mp.process.BaseProcess:
    process = mp.get_context("fork").Process(target=_tabulate, args=args)
    process.start()
    return process


def _ended(process: mp.process.BaseProcess) -> int | None:
    process.join(300)
    return process.exitcode


def _kept(store: Store, digest: str) -> int:
    return len(Trainings(task_named("toy"), store, digest).of_splits(range(COARSE[1])))


def test_a_killed_tabulation_goes_on_where_it_was(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    assert _ended(_process(root, log, 101, None)) == -signal.SIGKILL
    work = work_left("toy", Store(root), SECTION)
    assert (work.rows, work.of) == (ROWS - 100, ROWS)
    assert _ended(_process(root, log, None, None)) == 0
    assert log.stat().st_size == ROWS + 1, "only the row in progress is made again"
    assert work_left("toy", Store(root), SECTION).rows == 0
    whole = tmp_path / "whole"
    assert _ended(_process(whole, tmp_path / "other", None, None)) == 0
    resumed, unbroken = (ground_named("toy", Store(at), SECTION) for at in (root, whole))
    assert resumed.landscape is not None
    assert unbroken.landscape is not None
    np.testing.assert_array_equal(resumed.landscape.test, unbroken.landscape.test)


def test_two_processes_tabulate_one_landscape(tmp_path: Path) -> None:
    root, barrier = tmp_path / "store", mp.get_context("fork").Barrier(2)
    both = [_process(root, tmp_path / f"log{k}", None, barrier) for k in range(2)]
    assert [_ended(process) for process in both] == [0, 0]
    ground = ground_named("toy", Store(root), SECTION)
    assert ground.landscape is not None
    assert np.isfinite(ground.landscape.test).all()
    assert _kept(Store(root), ground.data_sha256) == ROWS


def test_what_is_left_is_counted_without_writing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    full = SECTION.model_copy(update={"landscape": "full"})
    assert [work_left("toy", store, one).rows for one in (SECTION, full)] == [256, 2560]
    assert not store.root.exists()


def test_a_coarse_landscape_is_part_of_the_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    trained: list[tuple[str, int]] = []

    def evaluate(self: Task, data: Any, split: Any, config: Any, seed: int) -> Evaluation:
        trained.append((str(config), seed))
        score = float(self.space.positions(config)[0]) + 0.001 * seed
        return Evaluation(score, score)

    monkeypatch.setattr(Task, "evaluate", evaluate)
    ground_named("toy", store, SECTION)
    assert len(trained) == ROWS
    ground_named("toy", store, SECTION.model_copy(update={"landscape": "full"}))
    assert len(trained) == len(set(trained)) == 2560
