"""The line that says where Dagster's records of a store's runs are kept."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import pytest

from contextcliff_dagster.defs import home
from contextcliff_dagster.store import Store


def test_the_line_to_copy_holds_for_a_path_with_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.delenv(home._WARNED, raising=False)
    store = Store(tmp_path / "my store; 'old'")
    with caplog.at_level(logging.WARNING, "dagster.contextcliff"):
        home.warn_without_home(store)
    _, _, line = caplog.text.strip().partition("export ")
    assert shlex.split(line) == [f"DAGSTER_HOME={home.dagster_home(store)}"]
