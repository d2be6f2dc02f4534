"""Runs that Dagster launches share one limit a place, whether it is their step's pool or a slot."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time
from dagster._daemon.monitoring.concurrency import execute_concurrency_slots_iteration

from contextcliff_dagster.defs.resources import Watch
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.run.study import LocalRuns
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.conftest import Written
from contextcliff_dagster_tests.support.graphql import ui_of
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.tiny_study import Run

SERVED = "{engine: openai, window_tokens: 8192, base_url: 'http://%s/v1'}"
HERE = "{engine: reference, window_tokens: 8192, gpus: %d}"
SHORT = {"first": "reference-short.b00", "last": "reference-short.b02"}
PLACE = "this-machine"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The committed instance."""
    home = tmp_path / "dagster_home"
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster_home" / "dagster.yaml", home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def taken(instance: dg.DagsterInstance) -> None:
    """A run of something else measures on this machine."""
    slots = instance.event_log_storage
    slots.initialize_concurrency_limit_to_default(PLACE)
    assert slots.claim_concurrency_slot(PLACE, "other-run", "other-step").is_claimed


@pytest.fixture
def two_places(models: Written) -> None:
    models(f"reference-short: {HERE % 0}\nreference-long: {SERVED % 'nowhere:1'}")


class Freed(Watch):
    """Frees the other run's slot as soon as somebody waits for it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.waits: list[str] = []

        def on_wait(sentence: str) -> None:
            self.waits.append(sentence)
            instance.event_log_storage.free_concurrency_slots_for_run("other-run")

        super().__init__(on_wait=on_wait)


def slots_in_use(instance: dg.DagsterInstance) -> int:
    return instance.event_log_storage.get_concurrency_info(PLACE).active_slot_count


@pytest.mark.parametrize(
    ("at", "devices", "pools"),
    [
        (("one:8000", "one:8000"), "none", ["one:8000"]),
        (("one:8000", "two:8000"), "none", []),
        ((None, None), "none", [PLACE]),
        ((None, None), "left", [PLACE]),
        ((None, None), "left,right", []),  # leased
        ((None, "one:8000"), "left", []),
        ((None, None), "leased", []),  # in the process of a step: it sees one of several
    ],
)
def test_what_measures_at_one_place_is_in_its_pool(
    study: Study,
    models: Written,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    at: tuple[str | None, str | None],
    devices: str,
    pools: list[str],
) -> None:
    if devices == "leased":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        monkeypatch.setenv("CONTEXTCLIFF_LEASED", "3")
    else:
        monkeypatch.setenv("CONTEXTCLIFF_DEVICES", devices)
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(study.folder))
    entries = [SERVED % place if place else HERE % (devices != "none") for place in at]
    models(f"reference-short: {entries[0]}\nreference-long: {entries[1]}")
    with ui_of(instance) as ui:
        nodes = ui.ask("{ assetNodes { assetKey { path } pools } }")["assetNodes"]
    of = {"/".join(node["assetKey"]["path"]): node["pools"] for node in nodes}
    assert of["tiny/predictions"] == pools
    assert of["tiny/eval_records"] == []


@pytest.mark.usefixtures("prepared", "two_places", "taken")
def test_a_study_of_several_places_waits_for_a_slot_of_each(
    instance: dg.DagsterInstance, run: Run
) -> None:
    watch = Freed(instance)
    assert run("predictions", **SHORT, watch=watch).success
    assert watch.waits == [
        f"reference-short waits for a slot of the pool {PLACE}, in which other runs measure; the "
        "limit is set under Deployment > Concurrency."
    ]
    assert slots_in_use(instance) == 0


@pytest.mark.usefixtures("prepared", "two_places")
def test_a_slot_is_given_back_where_measuring_fails(instance: dg.DagsterInstance, run: Run) -> None:
    broke = {"predictions": {"budget_usd": -1.0}}
    assert not run("predictions", **SHORT, config=broke, raise_on_error=False).success
    assert slots_in_use(instance) == 0


@pytest.mark.usefixtures("prepared", "two_places", "taken")
def test_a_run_out_of_time_does_not_wait(instance: dg.DagsterInstance, run: Run) -> None:
    late = {"predictions": {"deadline_s": 1e-9}}
    assert not run("predictions", **SHORT, config=late, raise_on_error=False).success
    assert slots_in_use(instance) == 1


class Stopped(BaseException):
    """As a run is terminated, in the middle of anything."""


@pytest.mark.usefixtures("prepared", "two_places", "taken")
def test_a_run_that_is_terminated_while_it_waits_leaves_the_line(
    instance: dg.DagsterInstance, run: Run
) -> None:
    def on_wait(sentence: str) -> None:
        raise Stopped(sentence)

    with pytest.raises(Stopped):
        run("predictions", **SHORT, watch=Watch(on_wait=on_wait))
    line = instance.event_log_storage.get_concurrency_info(PLACE)
    assert (line.active_slot_count, line.pending_step_count) == (1, 0)


def test_the_slot_of_a_killed_run_is_freed_by_dagsters_monitoring(
    instance: dg.DagsterInstance, taken: None
) -> None:
    run = dg.DagsterRun("profile_tiny", "other-run", status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    context: Any = SimpleNamespace(instance=instance)

    def look() -> int:
        list(execute_concurrency_slots_iteration(context, logging.getLogger()))
        return slots_in_use(instance)

    assert look() == 1
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    with freeze_time(an_hour_ago):
        instance.report_run_failed(run)
    assert look() == 0


@pytest.mark.usefixtures("prepared", "taken")
@pytest.mark.parametrize("several", [False, True])
def test_a_command_does_not_wait_for_runs_of_dagster(
    study: Study,
    store: Store,
    models: Written,
    instance: dg.DagsterInstance,
    several: bool,
) -> None:
    """Its user asks now, and a killed command would keep its slot where no daemon runs."""
    entry = SERVED % "nowhere:1" if several else HERE % 0
    models(f"reference-short: {HERE % 0}\nreference-long: {entry}")
    of = study.with_models(["reference-short"])
    watch = Freed(instance)
    runs = LocalRuns.of(of, store, instance=instance)
    runs.materialize(LENGTH_PROFILE, ["predictions"], watch=watch)
    assert watch.waits == []
    assert slots_in_use(instance) == 1
