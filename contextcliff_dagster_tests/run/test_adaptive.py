"""Pilot, then targeted: rounds where a token is most informative, by sensor or in one process."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.analysis.design.allocation import Target
from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.defs.automation import study_sensors
from contextcliff_dagster.defs.resources import STORE, StoreResource, Watch, run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import judged_assets
from contextcliff_dagster.inference.ledger.campaigns import ensure_campaign
from contextcliff_dagster.run.adaptive import profile_targeted
from contextcliff_dagster.run.study import LocalRuns
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.tiny_study import Run

pytestmark = pytest.mark.usefixtures("unrecorded")

LONGER = """\
name: tiny
corpus: {kind: reference, task: lookup, documents: 200, max_tokens: 900}
tokenizer: reference
bins: {count: 5}
sampling: {samples_per_bin: 16}
targeted: {pilot: 3, until: 8%, round: 12}
prompt: {max_output_tokens: 12}
models: [reference-short]
analysis: {resamples: 100}
"""
CLIFFS = dg.AssetKey(["tiny", "cliffs"])
PREDICTIONS = dg.AssetKey(["tiny", "predictions"])


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "studies" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(LONGER, encoding="utf-8")
    return load_study(path)


def calls_of(store: Store) -> int:
    with open_ledger(store) as ledger:
        return int(ledger.read("SELECT count(*) FROM results")[0][0])


def test_the_sensor_asks_round_by_round_and_falls_silent(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    jobs = study_jobs(study)
    (sensor,) = study_sensors(study, jobs)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    definitions = dg.Definitions(
        assets=study_assets(study),
        jobs=jobs,
        sensors=[sensor],
        resources=run_resources(store.root),
    )

    store_resource = StoreResource(root=str(store.root))

    def evaluated() -> dg.SensorExecutionData:
        resources = {STORE: store_resource}
        return sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources=resources))

    def measured(request: dg.RunRequest) -> bool:
        done = definitions.resolve_job_def("measure_tiny").execute_in_process(
            run_config=request.run_config, tags=request.tags, instance=instance
        )
        if done.success:  # as `report_when_measured` does
            runs = LocalRuns.of(study, store, instance=instance)
            runs.materialize(None, [*judged_assets(LENGTH_PROFILE), "report"])
        return done.success

    (first,) = evaluated().run_requests
    assert first.run_key.endswith("/pilot")
    assert measured(first)
    assert calls_of(store) == 15
    asked, keys = 15, set()
    while requests := evaluated().run_requests:
        (request,) = requests
        assert [again.run_key for again in evaluated().run_requests] == [request.run_key]
        assert request.run_key not in keys
        keys.add(request.run_key)
        assert measured(request)
        # Twelve more, wherever they are; nothing of an earlier round is asked again.
        assert 0 < calls_of(store) - asked <= 12
        asked = calls_of(store)
        event = instance.get_latest_materialization_event(PREDICTIONS)
        why = event.asset_materialization.metadata["round"].value
        assert why.startswith(f"Round {len(keys) + 1}: ")
        assert "a drop of 26% is reached between" in why
        assert len(keys) <= 6
    assert keys
    said = str(evaluated().skip_message)
    assert "reference-short: Done after" in said or "is asked" in said
    # A new campaign begins with a pilot of its own.
    with open_ledger(store) as ledger:
        ensure_campaign(ledger, study.name, "another")
    assert [new.run_key for new in evaluated().run_requests] == ["another/pilot"]
    shown = instance.get_latest_materialization_event(CLIFFS).asset_materialization.metadata
    assert shown["examples_asked/reference-short"].value == asked


def test_the_sensor_waits_while_a_round_is_measured(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    (sensor,) = study_sensors(study, study_jobs(study))
    instance.add_run(
        dg.DagsterRun(job_name="measure_tiny", run_id="one", status=dg.DagsterRunStatus.STARTED)
    )
    resources = {STORE: StoreResource(root=str(store.root))}
    context = dg.build_sensor_context(instance=instance, resources=resources)
    ticked = sensor.evaluate_tick(context)
    assert "being measured" in str(ticked.skip_message)


def test_only_a_study_that_says_so_has_a_sensor(study: Study) -> None:
    assert study_sensors(study.changed(targeted=None), study_jobs(study)) == []


@pytest.fixture
def prepared(run: Run) -> None:
    """The manifest is frozen."""
    names = ("raw_corpus", "length_map", "distribution_audit", "manifest")
    run(*names, first="reference-short.b00", last="reference-short.b04")


@pytest.mark.usefixtures("prepared")
def test_a_cut_run_goes_on_where_it_was_and_pays_nothing_twice(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    told: list[str] = []
    target = Target(3, 0.02, 4)
    runs = LocalRuns.of(study, store, instance=instance)
    watch = Watch(should_stop=lambda: len(told) >= 3)
    cut = profile_targeted(runs, target, watch, on_round=told.append)
    assert told[0].startswith("reference-short: Pilot: 15 examples in b00, b01")
    assert told[1].startswith("reference-short: Round 2: 4 more examples in b0")
    some = calls_of(store)
    assert sum(summary.answered for summary in cut.profiled.calls.values()) == some
    more = profile_targeted(runs, target, on_round=told.append)
    sent = sum(summary.sent for summary in more.profiled.calls.values())
    assert calls_of(store) == some + sent
    assert sum(more.rounds["reference-short"].asked.values()) == calls_of(store)
    again = profile_targeted(runs, target)
    assert again.rounds["reference-short"].done == more.rounds["reference-short"].done
    assert again.profiled.calls == {}


@pytest.mark.usefixtures("prepared")
def test_the_deadline_ends_it_and_what_is_measured_is_reported(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    runs = LocalRuns.of(study, store)
    with pytest.raises(BudgetError):
        profile_targeted(runs, Target(3, 0.02, 4), Watch(deadline_s=1e-6))
    profile_targeted(runs, Target(3, 0.25, 4))
    before = calls_of(store)
    done = profile_targeted(runs, Target(4, 0.01, 4), Watch(deadline_s=1e-6))
    assert done.stopped
    assert calls_of(store) == before
    assert done.profiled.cliffs[0].n == before


@pytest.mark.usefixtures("prepared")
def test_a_bin_never_gives_more_than_the_study_samples(
    run: Run, study: Study, store: Store
) -> None:
    with pytest.raises(StudyError, match="sampled with 16"):
        run(
            "predictions", first="reference-short.b00", last="reference-short.b01",
            config={"predictions": {"samples": {"b00": 17}}},
        )  # fmt: skip
    run(
        "predictions", first="reference-short.b00", last="reference-short.b04",
        config={"predictions": {"samples": {"b01": 2, "b03": 1}}},
    )  # fmt: skip
    assert calls_of(store) == 3
