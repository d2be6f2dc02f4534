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

from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.terminal import call


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Return the folder that ``make`` filled for the first worker that asked; never write there."""
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
    return folder


def _profiled(*options: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        ended = call("profile", "quick", *options, "--store", str(folder))
        assert ended.code == 0, ended.err

    return make


@pytest.fixture(scope="session")
def quick_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`quick` as shipped, both models; to be read, or copied."""
    return made_once(tmp_path_factory, "quick", _profiled())


FEW = ("--samples-per-bin", "3", "--model", "reference-short")
"""Options of the `profile` behind `few_store`."""
FEW_CALLS = 15


@pytest.fixture(scope="session")
def few_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three examples a bin of `quick` for one model; to be read, or copied."""
    return made_once(tmp_path_factory, "few", _profiled(*FEW))


@pytest.fixture
def measured(study: Study, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The tiny study, with both of its models measured in the test's own store."""
    from contextcliff_dagster.defs.run import profile_study

    def make(folder: Path) -> None:
        profile_study(study, store=Store(folder))

    source = made_once(tmp_path_factory, "tiny", make)
    shutil.copytree(source, store.root, dirs_exist_ok=True)
    return study
