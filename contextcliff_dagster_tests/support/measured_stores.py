"""Stores of measured studies: made once for all workers of a run, and copied for each test.

For claims that begin after measuring. Copies are plain files, and take some ten milliseconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import PREDICTIONS
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.terminal import call

FEW = ("--samples-per-bin", "3", "--model", "reference-short")
"""Options of the `profile` behind `copy_of_few`."""
FEW_CALLS = 15


def copy_of_made(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    make: Callable[[Path], object],
    target: Path | None = None,
) -> Path:
    """Return a copy, in ``target`` or a folder of its own, of what ``make`` puts into a folder.

    The first worker that asks for ``name`` has it made, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, done = base / f"once-{name}", base / f"once-{name}.done"
    with (base / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    target = target or tmp_path_factory.mktemp(name)
    return Path(shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True))


def _profiled(*options: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        ended = call("profile", "quick", *options, "--store", str(folder))
        assert ended.code == 0, ended.err

    return make


def copy_of_quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with `quick` as shipped, both models measured."""
    return copy_of_made(tmp_path_factory, "quick", _profiled())


def copy_of_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with three examples a bin of `quick`, one model measured."""
    return copy_of_made(tmp_path_factory, "few", _profiled(*FEW))


@pytest.fixture
def measured(study: Study, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The tiny study, with both of its models measured in the test's own store."""
    return measured_copy(study, "tiny", store, tmp_path_factory)


def measured_copy(
    study: Study, name: str, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Study:
    """Return ``study``, measured in ``store``: once for all tests that give this ``name``."""
    from contextcliff_dagster.run.study import profile_study

    def make(folder: Path) -> None:
        profile_study(study, store=Store(folder))

    copy_of_made(tmp_path_factory, name, make, store.root)
    return study


def make_worse(study: Study, store: Store, campaign: str) -> None:
    """Every answer of one model is wrong in the recorded tables of ``campaign``."""
    folder = store.campaign_dir("predictions", study.name, campaign)
    for path in sorted((folder / "model=reference-short").rglob("*.parquet")):
        table = read_table(path, PREDICTIONS)
        rows = table.to_pylist()
        write_table(path, [{**row, "raw_output": "000000"} for row in rows], PREDICTIONS)
