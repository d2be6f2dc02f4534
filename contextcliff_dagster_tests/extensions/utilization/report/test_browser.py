"""The page on utilization in a browser: light and dark, on a phone and on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.utilization.analysis.model import analyse_model
from contextcliff_dagster.extensions.utilization.report.page import (
    WrongAnswer,
    draw_pictures,
    examples_shown,
    utilization_page,
)
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.utilization.planted_records import planted_records
from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.requirements import require

pytestmark = pytest.mark.browser
LONG = "an answer with a word of " + "many" * 30 + " letters"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, three formats, two benchmarks, an arm, and answers."""
    records = planted_records(
        {"jsonl": 30_000, "prose": 7_000, "markdown": 15_000},
        benchmarks=("warehouse", "network"),
        arms={"order=shuffled": -0.2},
        seeds=6,
    )
    first = analyse_model(records, evidence="growing")
    results = [replace(first, model=name) for name in ("reader-a", "vendor/reader-b:latest")]
    pictures = draw_pictures(results)
    wrong = WrongAnswer("reader-a", "network-prose-8k", "Q?", "57", LONG, "wrong_evidence", 3, 0.4)
    answers = examples_shown([wrong] * 3)
    made = utilization_page(results, answers, title="Formats", pictures=pictures)
    folder = tmp_path_factory.mktemp("page")
    return write_page(
        made, folder, pictures=pictures, results=[to_json(one) for one in results]
    ).html


@pytest.mark.parametrize("phone_and_dark", [False, True], ids=["desk-light", "phone-dark"])
def test_axe_finds_nothing_and_the_page_never_scrolls_sideways(
    browser: ReportBrowser, page: Path, phone_and_dark: bool
) -> None:
    require("axe")
    browser.open(page, phone=phone_and_dark, dark=phone_and_dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    width = browser.run("return document.documentElement.clientWidth")
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.accessibility() == []
    assert browser.complaints() == []


def test_on_a_phone_a_picture_keeps_a_size_that_can_be_read(
    browser: ReportBrowser, page: Path
) -> None:
    browser.open(page, phone=True)
    widths = browser.run(
        "return [...document.querySelectorAll('.picture img')].map((one) => one.width)"
    )
    assert min(widths) >= 600
    captions = browser.run(
        "return [...document.querySelectorAll('caption')].map("
        "(one) => one.getBoundingClientRect().right)"
    )
    assert max(captions) <= 360


def test_in_the_dark_a_picture_keeps_its_white_ground(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, dark=True)
    image = "getComputedStyle(document.querySelector('.picture img')).backgroundColor"
    body = "getComputedStyle(document.documentElement).backgroundColor"
    assert browser.run(f"return {image}") == "rgb(255, 255, 255)"
    assert browser.run(f"return {body}") != "rgb(255, 255, 255)"


def test_on_paper_everything_is_there(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, dark=True)
    questions = [element.text for element in browser.all(".folds summary h2")]
    words = browser.words_on_a4()
    for text in (*questions, "Lengths are made here, not natural", "band over all scales"):
        assert text in words
