"""What the UI shows is true for the newest campaign, whichever run ended last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.asset_specs import run_config
from contextcliff_dagster.defs.automation import begin_job
from contextcliff_dagster.defs.campaign_runs import keep_campaigns
from contextcliff_dagster.defs.partitions import add_campaign, campaign_partitions
from contextcliff_dagster.defs.resources import run_resources
from contextcliff_dagster.experiments.common.study_run import begin_campaign, open_ledger
from contextcliff_dagster.experiments.length_profile.regression import pin_baseline
from contextcliff_dagster.inference.ledger.campaigns import new_campaign
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.graphql import ui_of
from contextcliff_dagster_tests.support.measured_stores import make_worse
from contextcliff_dagster_tests.support.tiny_study import TINY, Run


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that another process, such as the UI, could open."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Twelve examples a bin: enough to see a decline."""
    path = tmp_path / "studies" / "tiny.yaml"
    path.parent.mkdir()
    path.write_text(TINY.replace("samples_per_bin: 4", "samples_per_bin: 12"), encoding="utf-8")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(path.parent))
    return load_study(path)


@pytest.mark.usefixtures("prepared")
def test_a_late_report_of_an_older_campaign_changes_nothing_of_the_newest(
    run: Run,
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
) -> None:
    measured = ("predictions", "eval_records", "metrics", "cliffs", "report")
    pinned, slow, newest = "2026-11-02T0300", "2026-11-09T0300", "2026-11-16T0300"

    for campaign in (pinned, slow, newest):
        begin_campaign(store, study.name, campaign)
        run(*measured, campaign=campaign)
    pin_baseline(study, store, pinned)
    make_worse(study, store, newest)
    latest = store.report_dir(study.name, newest).parent / "latest"
    with ui_of(instance) as ui:
        run(*measured[1:], campaign=newest)
        before = ui.check("tiny/cliffs", "no_shrink")
        assert before["status"] == "FAILED"
        said = before["evaluation"]["description"]
        assert f"reference-short has declined in {newest} against {pinned}" in said
        run(*measured[1:], campaign=slow)
        after = ui.check("tiny/cliffs", "no_shrink")
        assert after["runId"] != before["runId"]
        assert {**after, "runId": ""} == {**before, "runId": ""}
        assert ui.check("tiny/eval_records", "missing_share")["status"] == "SUCCEEDED"
        assert latest.resolve().name == newest
        # Begun and not judged: no other campaign's outcome stands for it.
        begin_campaign(store, study.name, "2026-11-23T0300")
        run(*measured[1:], campaign=newest)
        assert ui.check("tiny/cliffs", "no_shrink")["status"] == "SKIPPED"
        assert latest.resolve().name == newest


@pytest.mark.usefixtures("prepared")
def test_a_new_campaign_has_the_cells_that_were_measured_in_it(
    run: Run, study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    run("predictions", "eval_records", "metrics", "cliffs", "report", campaign="first")
    begun = begin_job(study).execute_in_process(
        instance=instance,
        resources=run_resources(store.root),
        run_config=run_config(study, {"begin_campaign": {"name": "second"}}),
    )
    assert begun.success
    one = "reference-short.b01"
    run("predictions", first=one, last=one)
    with ui_of(instance) as ui:
        cells, stats = ui.partitions("tiny/predictions")
        assert {key for key, status in cells.items() if status == "FRESH"} == {
            *(key for key in cells if key.startswith("first|")),
            f"second|{one}",
        }
        missing = {key for key, status in cells.items() if status == "MISSING"}
        assert missing == {key for key in cells if key.startswith("second|")} - {f"second|{one}"}
        assert stats == {"numMaterialized": 7, "numFailed": 0, "numPartitions": 12}
        for name in ("eval_records", "cliffs", "report"):
            assert ui.partitions(f"tiny/{name}")[0] == {"first": "FRESH", "second": "MISSING"}


def test_campaigns_of_the_ledger_become_keys_and_only_the_newest(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    """Those of an earlier version, an import, another instance or a shared ledger."""
    of = study.changed(assets={"campaigns": 2})
    for name in ("one", "two", "three"):
        begin_campaign(store, study.name, name)
    with open_ledger(store) as ledger:
        new_campaign(ledger, study.name, name="sentinel-1")
    add_campaign(instance, of, "not-begun-yet")
    keep_campaigns(instance, store, [of])
    keys = str(campaign_partitions(of).name)
    assert {*instance.get_dynamic_partitions(keys)} == {"not-begun-yet", "two", "three"}
    begin_campaign(store, study.name, "four")
    keep_campaigns(instance, store, [of])
    assert {*instance.get_dynamic_partitions(keys)} == {"not-begun-yet", "three", "four"}
    for tick in range(5):  # of a schedule whose runs all fail before their first call
        add_campaign(instance, of, f"tick-{tick}")
    keep_campaigns(instance, store, [of])
    assert {*instance.get_dynamic_partitions(keys)} == {"tick-3", "tick-4", "three", "four"}


@pytest.mark.parametrize("name", ["a...b", "sentinel-1", "a|b", "", ".", "x" * 61])
def test_a_name_that_cannot_be_a_key_is_refused(study: Study, store: Store, name: str) -> None:
    with pytest.raises(StudyError, match=r"campaign name|reserved"):
        begin_campaign(store, study.name, name)
