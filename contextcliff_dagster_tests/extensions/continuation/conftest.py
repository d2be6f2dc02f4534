"""Two short texts, and the store in which `small` of them is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.continuation.test_experiment import novel, small
from contextcliff_dagster_tests.support.measured_stores import copy_of_made


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contextcliff_home: Path) -> Path:
    """Their folder."""
    monkeypatch.delenv("DAGSTER_HOME")
    for number, name in enumerate(("harbour", "orchard")):
        (tmp_path / f"{name}.txt").write_text(novel(number, 700), encoding="utf-8")
    return tmp_path


@pytest.fixture
def folder(texts: Path, contextcliff_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their folder, with `small` measured in the test's own store."""

    def make(store: Path) -> None:
        profile_study(small(texts), store=Store(store))

    copy_of_made(tmp_path_factory, "prose", make, contextcliff_home)
    return texts
