"""One start of an engine for models that load the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.devices.leases import FOLDER_VARIABLE
from contextcliff_dagster.inference.engines import base as sessions
from contextcliff_dagster.inference.execution.measure import engines_kept, started_engine
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster_tests.support.lease_holders import holders
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine


class Switching(ScriptedEngine):
    """Serves whatever has the same weights; notes its starts and ends."""

    events: list[str]

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(lambda _: [])
        self.weights = entry.weights

    async def start(self) -> None:
        self.events.append(f"start {self.weights}")

    async def stop(self) -> None:
        if f"stop {self.weights}" not in self.events[-1:]:
            self.events.append(f"stop {self.weights}")

    def switch_to(self, entry: ModelEntry) -> bool:
        return entry.weights == self.weights


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sessions, "open_engine", Switching)
    Switching.events = []
    yield Switching.events
    assert holders() == {}


def use(weights: str, gpus: object = "auto", fail: bool = False) -> None:
    entry = ModelEntry.model_validate(
        {"name": weights, "engine": "kvpress", "weights": weights, "gpus": gpus}
    )
    with started_engine(entry, f"Model {weights}", RunControl()) as session:
        assert session.entry is entry
        assert bool(holders()) == (gpus != 0)
        if fail:
            raise EngineError("broken")


def test_models_of_the_same_weights_share_a_start_and_the_devices(events: list[str]) -> None:
    with engines_kept():
        use("a")
        assert holders(), "another process would start on the device of an engine that is there"
        use("a")
        use("b")
        use("b", gpus=0)
        assert holders() == {}
        use("b", gpus=0)
    assert events == ["start a", "stop a", "start b", "stop b", "start b", "stop b"]


def test_outside_each_model_has_its_own(events: list[str]) -> None:
    use("a")
    use("a")
    assert events == ["start a", "stop a"] * 2


def test_an_error_ends_the_engine_and_the_next_model_starts_anew(events: list[str]) -> None:
    with engines_kept():
        for fails in (False, True, False):
            try:
                use("a", fail=fails)
            except EngineError:
                assert holders() == {}
        assert events == ["start a", "stop a", "start a"]
    assert events[3:] == ["stop a"]
