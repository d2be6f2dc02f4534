"""Comparison, overview, regression, gallery and atlas in a browser: as good as report.html."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contextcliff_dagster.analysis.regression import Shrink
from contextcliff_dagster.contracts.results import Cliffs, Comparison, from_json
from contextcliff_dagster.experiments.length_profile import regression as regression_page
from contextcliff_dagster.experiments.length_profile.regression import Regression
from contextcliff_dagster.reporting.comparison import write_comparison
from contextcliff_dagster.reporting.length_profile.page import MANY
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.paths import DOCS
from contextcliff_dagster_tests.support.records.answer_tables import answered
from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.requirements import require

OLD = Path(__file__).parents[2] / "support" / "records" / "results_of_0_1_0" / "comparison.json"
PUBLIC = DOCS / "results" / "public"
pytestmark = pytest.mark.browser


def some_results(count: int) -> list[Cliffs]:
    return [answered(f"model {i}", seed=i, per_bin=4)[0] for i in range(count)]


def compared(folder: Path) -> Path:
    comparison = from_json(Comparison, json.loads(OLD.read_text("utf-8")))
    first, second = some_results(2)
    return write_comparison(comparison, folder, (first, second)).html


def overview(folder: Path) -> Path:
    return write_report(some_results(MANY + 1), None, folder, title="Many").html


def regression(folder: Path) -> Path:
    (result,) = some_results(1)
    shrink = Shrink(
        shrunk=True, p_value=0.001, alpha=0.01, from_tokens=900, to_tokens=1_200, examples=50,
        right=40, lost=20, gained=2, n=80, before=0.8, now=0.6, runs=0, unusual=None,
    )  # fmt: skip
    found = Regression("before", "now", {result.model: shrink}, {"another": "no answers"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regression_page, "read_cliffs", lambda *_: [result])
        page = regression_page.write_regression(found, find_study("quick"), Store(folder))
    assert page is not None
    return page


def gallery(_: Path) -> Path:
    return DOCS / "results" / "index.html"


def atlas(_: Path) -> Path:
    return PUBLIC / "index.html"


def atlas_series(_: Path) -> Path:
    return next(page for page in sorted(PUBLIC.glob("series/gpt-4-turbo-1106-finance*")))


def atlas_pair(_: Path) -> Path:
    return next(page for page in sorted(PUBLIC.glob("pairs/gpt-4-turbo-1106-finance*")))


PAGES = [compared, overview, regression, gallery, atlas, atlas_series, atlas_pair]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("make", PAGES)
def test_axe_finds_nothing_on_other_pages(
    browser: ReportBrowser, tmp_path: Path, make: Callable[[Path], Path], dark: bool
) -> None:
    require("axe")
    browser.open(make(tmp_path), phone=True, dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("return document.documentElement.scrollWidth") == 360
    assert browser.accessibility() == []
    assert browser.complaints() == []


def test_from_many_models_to_one_and_back(browser: ReportBrowser, tmp_path: Path) -> None:
    page = overview(tmp_path)
    browser.open(page)
    browser.one("main a").click()
    assert browser.reads(".card .cap").endswith("tokens")
    browser.one("main a").click()
    browser.until(lambda: browser.driver.current_url == page.as_uri())
    own = next((tmp_path / "models").glob("*/report.md")).read_text("utf-8")
    assert f"[All {MANY + 1} models](../../report.md)" in own
