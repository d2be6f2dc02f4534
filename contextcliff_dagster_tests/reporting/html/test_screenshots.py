"""The pictures of the report in the documentation, page and terminal: drawn where asked for.

CONTEXTCLIFF_SCREENSHOTS=docs/img python -m pytest -m browser contextcliff_dagster_tests/reporting
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.terminal import call

FOLDER = "CONTEXTCLIFF_SCREENSHOTS"
SCREEN = (1240, 1060)
TERMINAL = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 0; padding: 24px 26px; background: #17191d; color: #f2f2f2 }}
pre {{ margin: 0; width: 124ch; white-space: pre-wrap; font: 15px/1.4 monospace }}
b {{ color: #6fbf5f; font-weight: normal }}</style>
<pre><b>$</b> contextcliff report

{text}</pre>"""


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

        printed = call("report", "reference", "--store", str(tmp_path))
        text = printed.out.replace(str(tmp_path), "data/store").strip()
        terminal = tmp_path / "terminal.html"
        terminal.write_text(TERMINAL.format(text=escape(text)), encoding="utf-8")
        browser.open(terminal)
        box = browser.run("return document.querySelector('pre').getBoundingClientRect().toJSON()")
        size = round(box["width"] + 2 * box["x"]), round(box["height"] + 2 * box["y"])
        browser.command("Emulation.setDeviceMetricsOverride", **_screen(*size))
        browser.driver.save_screenshot(str(folder / "terminal.png"))
    finally:
        browser.close()


def _screen(width: int, height: int) -> dict[str, float]:
    return {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
