"""The interactive comparison in a browser: a study's report, and a page of finished runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.continuation.report.page import (
    continuation_page,
    draw_pictures,
)
from contextcliff_dagster.extensions.continuation.report.run_page import (
    CompareOptions,
    compare_results,
    metric_chart,
)
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.continuation.made_runs import OLD_CSV, write_made_run
from contextcliff_dagster_tests.extensions.continuation.measured_study import (
    STUDY,
    measured_result,
    measured_rows,
)
from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.requirements import require

pytestmark = pytest.mark.browser
HOSTILE = "</script><b onclick=alert(1)>hot\u202e"
SAMPLING = "temperature 0.7, top-k 100"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six sizes, three arms, one of them with a name that is markup."""
    design = replace(STUDY, sizes=(512, 1024, 2048, 4096, 8192, 16384), rounds=10, passages=20)
    rows = measured_rows(("base", "q4_0", HOSTILE), design)
    return written(measured_result(rows), tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms: axe looks at each element, and at all others for each."""
    return written(
        measured_result(measured_rows(("base", "q4_0"))), tmp_path_factory.mktemp("small")
    )


def written(result: ContinuationResult, folder: Path) -> Path:
    pictures = draw_pictures([result])
    return write_page(
        continuation_page([result], title="Prose", pictures=pictures),
        folder,
        pictures=pictures,
        results=[to_json(result)],
        chart=metric_chart(result, {"base": [SAMPLING]}),
    ).html


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A usual run, one that collapses, and a CSV file of the first version."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "old.csv").write_text(OLD_CSV, encoding="utf-8")
    paths = [
        write_made_run(folder / "usual"),
        write_made_run(folder / "gone", collapse_from=4096, name="tiny-2B"),
        folder / "old.csv",
    ]
    options = CompareOptions(dpi=50, folder=folder)
    return next(file for file in compare_results(paths, options).files if file.suffix == ".html")


def switch(browser: ReportBrowser, name: str, value: str) -> None:
    browser.one(f"#switches input[name={name}][value='{value}']").click()


def choose(browser: ReportBrowser, metric: str, panel: int = 0) -> None:
    browser.all("#panels select")[panel].find_element(
        "css selector", f"option[value={metric}]"
    ).click()


def heights(browser: ReportBrowser) -> list[float]:
    places = [one.get_attribute("transform") or "" for one in browser.all("#panels .m0 .mark")]
    return [float(place.split("(")[1].split(")")[0].split()[1]) for place in places]


def test_choose_invert_rounds_and_hover(browser: ReportBrowser, study: Path) -> None:
    browser.open(study)
    assert len(browser.all("#panels .panel")) == 1
    assert len(browser.all("#panels .mark")) == 18
    assert len(browser.all("#panels .own")) == 1
    before = heights(browser)
    choose(browser, "lix")
    assert heights(browser) != before
    assert browser.one("#shown").get_attribute("textContent") == (
        "Readability (LIX) over context size"
    )
    upright = heights(browser)
    browser.one("#panels .invert").click()
    assert browser.one("#panels .invert").get_attribute("aria-pressed") == "true"
    assert browser.one("#panels .invert").text == "Value axis inverted"
    flipped = heights(browser)
    assert {round(a + b) for a, b in zip(upright, flipped, strict=True)} == {
        round(upright[0] + flipped[0])
    }
    assert not browser.all("#panels .round")
    switch(browser, "rounds", "1")
    assert len(browser.all("#panels .m1 .round")) == 10
    assert not browser.all("#panels .m0 .round")
    mark = browser.all("#panels .m0 .bin")[2]
    browser.point_at(mark)
    hint = browser.one("#panels .hint").text
    for words in ("base", "2,048 tokens of context", "Readability (LIX)", SAMPLING):
        assert words in hint
    assert "200 continuations of 20 passages, 10 rounds" in hint
    assert browser.complaints() == []


def test_layouts_switches_and_legend(browser: ReportBrowser, study: Path) -> None:
    browser.open(study)
    switch(browser, "layout", "four")
    assert len(browser.all("#panels .panel")) == 4
    choose(browser, "rhythm", 3)
    assert "Correlation" in (browser.one("#shown").get_attribute("textContent") or "")
    switch(browser, "layout", "all")
    assert len(browser.all("#panels .panel")) == 25
    assert "not measured" in browser.one("#panels").text
    switch(browser, "layout", "one")
    assert len(browser.all("#panels .interval")) == 18
    switch(browser, "show", "bars")
    assert not browser.all("#panels .interval")
    switch(browser, "show", "author")
    assert not browser.all("#panels .own")
    assert "C" not in (browser.one("#panels .curve").get_attribute("d") or "")
    switch(browser, "show", "smooth")
    assert "C" in (browser.one("#panels .curve").get_attribute("d") or "")
    switch(browser, "show", "trend")
    assert len(browser.all("#panels .trend")) == 3
    assert "Trend per doubling" in browser.one("#panels .slopes").text
    switch(browser, "axis", "linear")
    assert "log" not in browser.one("#panels .axis").text
    for row in "012":
        switch(browser, "lines", row)
    assert "no arm is chosen" in browser.one("#panels").text
    switch(browser, "lines", "2")
    assert len(browser.all("#panels .mark")) == 6
    assert not browser.all("main b, main script")
    assert browser.complaints() == []


def test_keys_alone(browser: ReportBrowser, study: Path) -> None:
    browser.open(study)
    label = "return document.activeElement.getAttribute('aria-label') ?? ''"
    for _ in range(40):
        browser.press(Keys.TAB)
        if "tokens of context:" in browser.run(label):
            break
    assert browser.run(label).startswith("base, 512 tokens of context: Score")
    assert browser.one("#panels .hint").is_displayed()
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert browser.run(label).startswith("q4_0, 1,024 tokens of context: Score")
    browser.press(Keys.ESCAPE)
    assert not browser.one("#panels .hint").is_displayed()


def test_finished_runs_with_and_without_rounds(browser: ReportBrowser, runs: Path) -> None:
    browser.open(runs)
    assert len(browser.all("#switches input[name=rounds]")) == 3
    assert browser.one("#panels .invert").get_attribute("aria-pressed") == "true"
    assert browser.one("#panels .invert").text == "Value axis inverted: up is worse"
    assert len(browser.all("#panels .mark")) == 11
    choose(browser, "cloze_score")
    assert len(browser.all("#panels .m2 .interval")) == 2, "deviations of a CSV file"
    choose(browser, "adjacent_coherence")
    assert len(browser.all("#panels .m2 .mark")) == 0
    choose(browser, "reading_level")
    browser.point_at(browser.all("#panels .m2 .bin")[0])
    assert "11-12" in browser.one("#panels .hint").text
    switch(browser, "layout", "all")
    assert len(browser.all("#panels .panel")) == 27
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("page", "layout", "phone", "dark"),
    [
        ("small", "one", False, True),
        ("small", "all", False, False),
        ("small", "four", True, False),
        ("runs", "one", True, True),
    ],
)
def test_axe_finds_nothing_and_the_page_never_scrolls_sideways(
    browser: ReportBrowser,
    page: str,
    layout: str,
    phone: bool,
    dark: bool,
    request: pytest.FixtureRequest,
) -> None:
    require("axe")
    browser.open(request.getfixturevalue(page), phone=phone, dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    switch(browser, "layout", layout)
    switch(browser, "show", "trend")
    width = browser.run("return document.documentElement.clientWidth")
    assert browser.run("return document.documentElement.scrollWidth") == width
    assert browser.accessibility() == []
    assert browser.complaints() == []


def test_on_paper_and_without_scripts_the_plain_picture_is_there(
    browser: ReportBrowser, study: Path
) -> None:
    browser.open(study, dark=True)
    words = browser.words_on_a4()
    assert "Readability (LIX)" in words
    assert "Each metric over context size" not in words
    with browser.without_scripts():
        browser.open(study)
        assert not browser.one("#picture").is_displayed()
        assert len(browser.all(".folds .picture img")) == 2


def test_the_page_is_small(study: Path) -> None:
    assert study.stat().st_size < 2_000_000
