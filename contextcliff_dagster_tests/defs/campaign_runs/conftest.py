"""The tiny study, its models at two places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.studies import Study

__all__ = ["Written", "instance", "models", "weekly"]

Written = Callable[[str], None]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that another process, such as the daemon, could open."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Writes models.yaml: name and the rest of an entry, a line each."""
    path = tmp_path / "models.yaml"
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))
    monkeypatch.setenv("CONTEXTCLIFF_LEASES", str(tmp_path / "leases"))

    def written(lines: str) -> None:
        entries = "".join(f"  {line.strip()}\n" for line in lines.strip().splitlines())
        path.write_text(f"models:\n{entries}", encoding="utf-8")

    return written


@pytest.fixture
def weekly(study: Study, models: Written, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Measured every Monday, by two models that are leased a device each of two."""
    monkeypatch.setenv("CONTEXTCLIFF_DEVICES", "left,right")
    models(
        """
        reference-short: {engine: reference, window_tokens: 8192, gpus: 1}
        reference-long: {engine: reference, window_tokens: 8192, gpus: 1}
        """
    )
    return study.changed(schedule={"cron": "0 3 * * 1"})
