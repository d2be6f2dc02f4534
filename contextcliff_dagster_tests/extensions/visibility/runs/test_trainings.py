"""What is remembered of trainings, by threads and processes side by side."""

from __future__ import annotations

import math
import multiprocessing as mp
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.extensions.visibility.landscape import data_digest
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings, trainings_file
from contextcliff_dagster.extensions.visibility.tasks.catalogue import load_data, task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Evaluation, Task
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.read_only import read_only

CONFIGS = [{"C": 0.5 + n, "max_iter": 100} for n in range(6)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that were trained, each within 20 ms and without a model."""
    log: list[Any] = []

    def evaluate(self: Task, data: Any, split: Any, config: Any, seed: int) -> Evaluation:
        time.sleep(0.02)
        log.append(config)
        return Evaluation(config["C"], math.nan)

    monkeypatch.setattr(Task, "evaluate", evaluate)
    return log


def trainings(store: Store) -> Trainings:
    task = task_named("toy")
    return Trainings(task, store, data_digest(load_data(task, store)))


def test_a_configuration_is_trained_once_and_failed_scores_are_kept(
    store: Store, trained: list[Any]
) -> None:
    first = trainings(store)
    for config in (*CONFIGS, *CONFIGS, dict(reversed(CONFIGS[0].items()))):
        assert first.evaluation(config, 0).validation == config["C"]
    assert trained == CONFIGS
    again = trainings(store).evaluation(CONFIGS[0], 0)
    assert (again.validation, math.isnan(again.test)) == (0.5, True)
    assert len(trained) == len(CONFIGS)
    first.evaluation(CONFIGS[0], 1)
    assert len(trained) == len(CONFIGS) + 1, "another split is another training"


def test_threads_train_nothing_twice(store: Store, trained: list[Any]) -> None:
    shared = trainings(store)
    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda config: shared.evaluation(config, 0), CONFIGS * 8))
    assert [one.validation for one in scores] == [config["C"] for config in CONFIGS * 8]
    assert len(trained) == len(CONFIGS)


def _open_at_once(root: Path, barrier: Barrier, failed: Any) -> None:
    own = trainings(Store(root))
    barrier.wait()
    try:
        for n in range(20):
            own.keep([(n, "{}", 0.5, None)])
        if len(own.of_splits(range(20))) != 20:
            failed.put("rows are missing")
    except StoreError as error:
        failed.put(str(error))


def test_processes_begin_one_file_at_once(store: Store) -> None:
    context = mp.get_context("fork")
    for round in range(3):
        barrier, failed = context.Barrier(4), context.Queue()
        root = store.root / str(round)
        processes = [
            context.Process(target=_open_at_once, args=(root, barrier, failed)) for _ in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        assert failed.empty(), failed.get()
        assert [process.exitcode for process in processes] == [0] * 4


def _hold(file: Path, seconds: float, held: threading.Event) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(seconds)


def test_a_file_that_another_process_has_locked_is_waited_for(
    store: Store, trained: list[Any]
) -> None:
    trainings(store).evaluation(CONFIGS[0], 0)
    held = threading.Event()
    holder = threading.Thread(target=_hold, args=(trainings_file(store), 2, held))
    holder.start()
    assert held.wait(120)
    assert trainings(store).evaluation(CONFIGS[1], 0).validation == 1.5
    holder.join()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"no database at all" * 100),
        lambda file: (file.unlink(), file.mkdir()),
    ],
    ids=["bytes", "a folder"],
)
def test_a_damaged_file_is_one_sentence(
    damage: Callable[[Path], object], store: Store, trained: list[Any]
) -> None:
    trainings(store).evaluation(CONFIGS[0], 0)
    file = trainings_file(store)
    for more in ("-wal", "-shm"):
        Path(f"{file}{more}").unlink(missing_ok=True)
    damage(file)
    with pytest.raises(StoreError) as caught:
        trainings(store).evaluation(CONFIGS[0], 0)
    assert str(file) in str(caught.value)
    assert str(caught.value).count(". ") == 0


def test_what_is_remembered_is_read_where_nothing_can_be_written(
    store: Store, trained: list[Any]
) -> None:
    own = trainings(store)
    own.evaluation(CONFIGS[0], 0)
    own._connection.close()
    with read_only(store.root):
        assert trainings(store).evaluation(CONFIGS[0], 0).validation == 0.5
        with pytest.raises(StoreError, match="let it be written"):
            trainings(store).evaluation(CONFIGS[1], 0)


def test_a_disk_that_is_full_is_one_sentence_and_nothing_is_lost(
    store: Store, trained: list[Any]
) -> None:
    own = trainings(store)
    own.evaluation(CONFIGS[0], 0)
    (pages,) = own._connection.execute("PRAGMA page_count").fetchone()
    own._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"full.*make room on the disk"):
        own.keep([(n, "x" * 1_000, 0.5, 0.5) for n in range(100)])
    assert trainings(store).evaluation(CONFIGS[0], 0).validation == 0.5
    assert len(trained) == 1


def test_other_bounds_are_other_trainings(store: Store, trained: list[Any]) -> None:
    own = trainings(store)
    own.evaluation(CONFIGS[0], 0)
    digits = task_named("digits").space
    replace(own, task=replace(own.task, space=digits)).keep([])
    assert replace(own, task=replace(own.task, space=digits)).of_splits([0]) == []
