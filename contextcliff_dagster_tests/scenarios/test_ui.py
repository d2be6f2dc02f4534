"""From the UI alone: a pilot, two bins of one model topped up, and a report worth looking at."""

from __future__ import annotations

import base64
import os
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contextcliff_dagster.contracts import PREDICTIONS
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster_tests.support.dagster_ui import DagsterUi, running_ui

if TYPE_CHECKING:
    from contextcliff_dagster_tests.support.browser import Browser

pytestmark = [
    # Three launches through the daemon take minutes; nothing less shows that the UI's own
    # requests reach the assets.
    pytest.mark.browser,
    pytest.mark.timeout(1500),
]

PILOT = 5
FULL = 10
TOPPED_UP = {("reference-short", "b01"), ("reference-short", "b02")}


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


def test_a_person_measures_from_the_ui(contextcliff_home: Path, tmp_path: Path) -> None:
    with running_ui(tmp_path) as ui:
        _measure(ui, contextcliff_home, tmp_path)


RUNS = """
query ($job: String!) { runsOrError(filter: {pipelineName: $job}) {
  ... on Runs { results { status startTime endTime tags { key value } } } } }"""


def _runs(browser: Browser, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.ask(RUNS, job=job)["runsOrError"]["results"]
    return found


def _insist_on_tags(browser: Browser) -> None:
    """Each run of the backfill names its own model, and no partition of another's."""
    tags = [
        {tag["key"]: tag["value"] for tag in run["tags"]} for run in _runs(browser, "profile_quick")
    ]
    assert {one["contextcliff/models"] for one in tags} == {"reference-short", "reference-long"}
    assert not [key for one in tags for key in one if key.startswith("dagster/partition/")]


def _wait_for_report(browser: Browser) -> None:
    """Until the report that follows the backfill of `profile_quick` is made."""
    deadline = time.monotonic() + 300
    measured = max(run["endTime"] for run in _runs(browser, "profile_quick"))
    while time.monotonic() < deadline:
        reports = [
            run for run in _runs(browser, "report_quick") if (run["startTime"] or 0) > measured
        ]
        if reports and reports[0]["status"] == "SUCCESS":
            assert len(reports) == 1
            return
        time.sleep(2)
    raise AssertionError(f"no report followed: {_runs(browser, 'report_quick')}")


def _measure(ui: DagsterUi, contextcliff_home: Path, tmp_path: Path) -> None:
    from PIL import Image

    from contextcliff_dagster_tests.support.browser import Browser

    began = time.time()
    store = Store(contextcliff_home)
    browser = Browser(ui, tmp_path / "chromium")
    pictures = Path(os.environ.get("CONTEXTCLIFF_SCREENSHOTS", tmp_path))
    try:
        browser.launch_job("pilot_quick")
        browser.wait_for_backfills(1)
        pilot = rows_and_times(store)
        assert {rows for rows, _ in pilot.values()} == {PILOT}
        assert len(pilot) == 10  # two models, five bins

        browser.backfill(
            "quick/predictions", ("model", ("reference-short",)), ("tokens", ("b01", "b02"))
        )
        browser.wait_for_backfills(2)
        after = rows_and_times(store)
        assert {key: after[key][0] for key in TOPPED_UP} == dict.fromkeys(TOPPED_UP, FULL)
        untouched = set(pilot) - TOPPED_UP
        assert {key: after[key] for key in untouched} == {key: pilot[key] for key in untouched}

        browser.launch_job("profile_quick")
        browser.wait_for_backfills(3)
        assert {rows for rows, _ in rows_and_times(store).values()} == {FULL}
        _insist_on_tags(browser)
        _wait_for_report(browser)

        browser.open("/assets/quick/report")
        browser.see("//*[contains(text(),'reference-long')]")
        browser.screenshot(pictures / "ui-report.png")
        browser.click("(//*[contains(text(),'[Show Markdown]')])[1]")
        image = browser.see("//div[contains(@class,'dialog')]//img")
        width = browser.until(lambda: image.get_property("naturalWidth"))
        assert int(str(width)) >= 600
        assert image.size["width"] >= 600
        browser.screenshot(pictures / "ui-picture.png")
        source = str(image.get_attribute("src"))
        shown = Image.open(BytesIO(base64.b64decode(source.partition("base64,")[2])))
        assert shown.width >= 600
        assert len(set(shown.convert("L").resize((60, 40)).tobytes())) > 10  # a picture, not a page

        newest = browser.ask(
            '{assetNodeOrError(assetKey:{path:["quick","report"]}){...on AssetNode'
            "{assetMaterializations(limit:1){timestamp}}}}"
        )["assetNodeOrError"]["assetMaterializations"][0]["timestamp"]
        assert float(newest) / 1000 > began

        browser.resize(2200, 1000)  # in a narrower window the assets show their names alone
        browser.open("/locations/contextcliff_dagster/asset-groups/quick/lineage")
        browser.see("//*[normalize-space(text())='predictions']")
        browser.see("//*[normalize-space(text())='Materialized']")
        browser.screenshot(pictures / "ui-lineage.png")
    finally:
        browser.screenshot(tmp_path / "last.png")
        browser.close()
