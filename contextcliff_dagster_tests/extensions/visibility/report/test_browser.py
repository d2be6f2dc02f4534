"""The page on visibility in a browser: light and dark, on a phone and on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.visibility.report.page import draw_pictures, visibility_page
from contextcliff_dagster.extensions.visibility.report.single_runs import trajectories_of
from contextcliff_dagster.extensions.visibility.section import VisibilitySection
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.visibility.made_records import records_of_runs
from contextcliff_dagster_tests.extensions.visibility.report.made_results import made_result
from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.requirements import require

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, one with a long name, and two runs of the first told."""
    results = [made_result(name) for name in ("tuner", "vendor/a-model-with-a-long-name:latest")]
    runs = trajectories_of(records_of_runs(VisibilitySection(benchmarks=["toy", "wine"], steps=6)))
    runs += [replace(one, model=results[1].model) for one in runs]
    pictures = draw_pictures(results, runs)
    made = visibility_page(
        results, title="What a tuner is shown", trajectories=runs, pictures=pictures
    )
    folder = tmp_path_factory.mktemp("page")
    return write_page(
        made, folder, pictures=pictures, results=[to_json(one) for one in results]
    ).html


@pytest.mark.parametrize(("phone", "dark"), [(False, False), (True, True)], ids=["desk", "phone"])
def test_axe_finds_nothing_and_the_page_never_scrolls_sideways(
    browser: ReportBrowser, page: Path, phone: bool, dark: bool
) -> None:
    require("axe")
    browser.open(page, phone=phone, dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    width = browser.run("return document.documentElement.clientWidth")
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.accessibility() == []
    assert browser.complaints() == []


def test_on_paper_everything_is_there(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, dark=True)
    questions = [element.text for element in browser.all(".folds summary h2")]
    words = browser.words_on_a4()
    for text in (*questions, "The model tunes hyper-parameters", "Runs are chosen by rule"):
        assert text in words
