"""The pictures of report.html in the documentation, of the shipped study: drawn where asked for.

CONTEXTCLIFF_SCREENSHOTS=docs/img python -m pytest -m browser contextcliff_dagster_tests/reporting
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.terminal import call

FOLDER = "CONTEXTCLIFF_SCREENSHOTS"
SCREEN = (1240, 980)


@pytest.mark.browser
@pytest.mark.skipif(FOLDER not in os.environ, reason=f"draws into the folder that {FOLDER} names")
def test_pictures_of_the_reference_study(tmp_path: Path) -> None:
    folder = Path(os.environ[FOLDER])
    ended = call("profile", "reference", "--with-answers", "--store", str(tmp_path))
    assert ended.code == 0, ended.err
    page = (tmp_path / "reference" / "report" / "latest" / "report.html").resolve()
    browser = ReportBrowser()
    try:
        browser.command("Emulation.setDeviceMetricsOverride", **_screen(*SCREEN))
        for dark in (False, True):
            browser.open(page, dark=dark)
            browser.command("Emulation.setDeviceMetricsOverride", **_screen(*SCREEN))
            if dark:
                browser.one("#switches input[name=points]").click()
            browser.point_at(browser.all("#chart .bin")[16 if dark else 4])
            browser.reads("#hint")
            browser.driver.save_screenshot(str(folder / f"html-{'dark' if dark else 'light'}.png"))
        browser.open(page)
        browser.command("Emulation.setDeviceMetricsOverride", **_screen(*SCREEN))
        browser.click(browser.all("#chart .bin")[5])
        browser.reads("#bin")
        browser.run("document.getElementById('chart').scrollIntoView()")
        browser.run("window.scrollBy(0, -12)")
        browser.driver.save_screenshot(str(folder / "html-answers.png"))
        browser.open(page, phone=True)
        browser.driver.save_screenshot(str(folder / "html-phone.png"))
        assert browser.complaints() == []
    finally:
        browser.close()


def _screen(width: int, height: int) -> dict[str, float]:
    return {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
