"""From the UI alone: a pilot, two bins of one model topped up, and a report worth looking at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import PREDICTIONS
from contextcliff_dagster.defs.asset_specs import PREPARATION
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster_tests.support.dagster_ui import REPOSITORY, DagsterUi, running_ui
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.terminal import run

# Three launches through the daemon take minutes.
pytestmark = pytest.mark.timeout(1800)

PILOT = 5
FULL = 10
CELLS = [
    (model, f"b0{number}") for model in ("reference-short", "reference-long") for number in range(5)
]
TOPPED_UP = CELLS[1:3]
ASSETS = "query ($job: PipelineSelector!) { assetNodes(pipeline: $job) { assetKey { path } } }"
RUNS = """
query ($job: String!) { runsOrError(filter: {pipelineName: $job}) {
  ... on Runs { results { status startTime endTime tags { key value } } } } }"""
SHOWN = """
const image = document.querySelector("img[src*='/contextcliff/reports/']");
const whole = image?.complete && image.clientWidth == image.naturalWidth;
return whole && image.naturalWidth > 300 && image.src;"""


def rows_and_times(store: Store) -> dict[tuple[str, str], tuple[int, int]]:
    """(model, bin) -> rows of its predictions, and when the file was written."""
    found = {}
    for path in store.root.glob("quick/predictions/campaign=*/model=*/bin=*/*.parquet"):
        rows = read_table(path, PREDICTIONS)
        found[rows["model"][0].as_py(), rows["bin"][0].as_py()] = (
            rows.num_rows,
            path.stat().st_mtime_ns,
        )
    return found


def measure(ui: DagsterUi, keys: list[str], job: str) -> None:
    """As from the page of ``job``, which names all its assets."""
    selector = {**REPOSITORY, "pipelineName": job}
    assets = [one["assetKey"]["path"] for one in ui.ask(ASSETS, job=selector)["assetNodes"]]
    ui.backfill(assets, keys, job)


def test_a_person_measures_from_the_ui(contextcliff_home: Path, tmp_path: Path) -> None:
    store = Store(contextcliff_home)
    with running_ui(tmp_path, "--port", str(free_port())) as ui:
        campaign = "by-hand"
        ended = ui.launch(
            "begin_campaign_quick",
            config={"ops": {"quick__begin_campaign": {"config": {"name": campaign}}}},
        )
        assert ended["status"] == "SUCCESS", ended
        prepared = [["quick", name] for name in (*PREPARATION, "cost_estimate")]
        assert ui.launch("__ASSET_JOB", prepared)["status"] == "SUCCESS"
        keys = {cell: f"{campaign}|{'.'.join(cell)}" for cell in CELLS}
        measure(ui, [*keys.values()], "pilot_quick")
        pilot = rows_and_times(store)
        assert {cell: rows for cell, (rows, _) in pilot.items()} == dict.fromkeys(CELLS, PILOT)

        ui.backfill([["quick", "predictions"]], [keys[cell] for cell in TOPPED_UP])
        after = rows_and_times(store)
        assert {cell: after[cell][0] for cell in TOPPED_UP} == dict.fromkeys(TOPPED_UP, FULL)
        untouched = set(pilot) - set(TOPPED_UP)
        assert {cell: after[cell] for cell in untouched} == {
            cell: pilot[cell] for cell in untouched
        }

        measure(ui, [*keys.values()], "profile_quick")
        assert {rows for rows, _ in rows_and_times(store).values()} == {FULL}
        profiles = ui.ask(RUNS, job="profile_quick")["runsOrError"]["results"]
        insist_on_tags(profiles)
        measured = max(one["endTime"] for one in profiles)

        def reports(answer: dict[str, Any]) -> list[str]:
            """How those stand that follow the backfill."""
            runs = answer["runsOrError"]["results"]
            return [one["status"] for one in runs if (one["startTime"] or 0) > measured]

        reported = ui.ask_until(
            lambda answer: {*reports(answer)} & {"SUCCESS", "FAILURE"}, RUNS, job="report_quick"
        )
        assert reports(reported) == ["SUCCESS"]


def insist_on_tags(runs: list[dict[str, Any]]) -> None:
    """Each run of the backfill names its own model, and no partition of another's."""
    tags = [{tag["key"]: tag["value"] for tag in one["tags"]} for one in runs]
    assert {one["contextcliff/models"] for one in tags} == {"reference-short", "reference-long"}
    assert not [key for one in tags for key in one if key.startswith("dagster/partition/")]


@pytest.mark.browser
def test_the_page_of_the_report_shows_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    from contextcliff_dagster_tests.support.browser import Browser

    monkeypatch.delenv("DAGSTER_HOME")  # recorded where `contextcliff ui` shows it
    ended = run("profile", "quick", fresh=True)
    assert ended.code == 0, ended.err
    pictures = Path(os.environ.get("CONTEXTCLIFF_SCREENSHOTS", tmp_path))
    with running_ui(tmp_path, "--no-daemon", "--port", str(free_port())) as ui:
        browser = Browser(ui, tmp_path / "chromium")
        try:
            browser.open("/assets/quick/report")
            browser.see("//*[contains(text(),'reference-long')]")
            source = browser.until(lambda: browser.driver.execute_script(SHOWN))
            assert source.startswith(f"{ui.address}/contextcliff/reports/quick/report/")
            browser.screenshot(pictures / "ui-report.png")
            link = browser.see("//a[contains(@href, '/report.html')]")
            browser.driver.get(link.get_attribute("href"))
            browser.see("//h1")
            browser.see("//*[contains(@class, 'card')]//*[contains(text(), 'reference-long')]")

            if pictures != tmp_path:
                browser.resize(2200, 1000)  # in a narrower window the assets show their names alone
                browser.open("/locations/contextcliff_dagster/asset-groups/quick/lineage")
                browser.see("//*[normalize-space(text())='Materialized']")
                browser.screenshot(pictures / "ui-lineage.png")
        finally:
            browser.screenshot(tmp_path / "last.png")
            browser.close()
