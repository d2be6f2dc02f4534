"""report.html in a browser: opened from a file, pointed at, clicked, walked by keys, printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pypdfium2
import pytest
from selenium.webdriver.common.keys import Keys

from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.answer_tables import answered, evidence_of
from contextcliff_dagster_tests.support.report_browser import ReportBrowser
from contextcliff_dagster_tests.support.requirements import require

pytestmark = pytest.mark.browser

OWN = "document.title='owned'"
HOSTILE = f'</script><script>{OWN}</script><!--<img src=x onerror="{OWN}">'
NAME = "m<b onmouseover=alert(1)>x</b>\u202e&amp;"


def report(folder: Path, *, with_answers: bool = True, hostile: bool = False) -> Path:
    names = (NAME, "other") if hostile else ("reference-short", "reference-long")
    text = (lambda i: f"{HOSTILE}\x1b[31m\u2028{i}") if hostile else None
    made = [
        answered(names[0], text, l70=440, seed=1),
        answered(names[1], text, l70=1700, seed=2, low=60),
    ]
    return write_report(
        [result for result, *_ in made],
        pd.concat([records for _, records, _ in made], ignore_index=True),
        folder,
        title=HOSTILE if hostile else "Where the goods are kept",
        evidence=evidence_of(made, with_answers=with_answers),
    ).html


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(tmp_path_factory.mktemp("page"))


def choose(browser: ReportBrowser, name: str, value: str) -> None:
    browser.one(f"#switches input[name={name}][value='{value}']").click()


def drawn(browser: ReportBrowser, css: str) -> list[str]:
    return [one.get_attribute("d") or "" for one in browser.all(f"#chart {css}")]


def test_point_click_and_switch(browser: ReportBrowser, page: Path) -> None:
    browser.open(page)
    assert browser.one(".card .cap").text == "382 tokens"
    marks = browser.all("#chart .bin")
    assert len(marks) == 20
    browser.point_at(marks[5])
    hint = browser.one("#hint").text
    assert "reference-short" in hint
    assert "bin b05: 624 to 997 tokens" in hint
    assert "n = 20" in hint
    browser.click(marks[5])
    panel = browser.one("#bin").text
    assert "Bin b05: 624 to 997 tokens" in panel
    assert "consignment" in panel
    assert "evidence at" in panel
    shown = {kind: len(browser.all(f"#bin .given > .{kind}")) for kind in ("right", "wrong")}
    assert shown["right"]
    assert shown["wrong"]
    browser.one("#bin input[value=wrong]").click()
    assert all(item.find_elements("css selector", ".wrong") for item in browser.all("#bin .asked"))

    caps = drawn(browser, ".cap")
    choose(browser, "tolerance", "0.1")
    assert len(caps) == len(drawn(browser, ".cap")) == 2
    assert caps != drawn(browser, ".cap")
    assert "tolerated drop of 10% (the study's own is 30%)" in browser.one("#note").text
    choose(browser, "axis", "linear")
    assert "log" not in browser.one("#chart .axis").text
    choose(browser, "points", "points")
    assert len(drawn(browser, ".points")) == 2
    choose(browser, "score", "f1")
    assert not drawn(browser, ".curve")
    assert not drawn(browser, ".cap")
    assert "belong to the primary score (exact match)" in browser.one("#note").text
    choose(browser, "models", "1")
    assert len(browser.all("#chart .bin")) == 10
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    before = browser.run(ground)
    browser.one("#theme button").click()
    browser.one("#theme button").click()
    assert browser.one("#theme button").text == "Theme: Dark"
    assert browser.run(ground) != before
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []


def test_keys_alone(browser: ReportBrowser, page: Path) -> None:
    browser.open(page)
    label = "return document.activeElement.getAttribute('aria-label') ?? ''"
    for _ in range(30):
        browser.press(Keys.TAB)
        if "bin b0" in browser.run(label):
            break
    assert browser.run(label).startswith("reference-short, bin b00, 60 to 95 tokens: exact match ")
    assert browser.one("#hint").is_displayed()
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert browser.run(label).startswith("reference-long, bin b02")
    browser.press(Keys.ENTER)
    assert browser.one("#bin").is_displayed()
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press(Keys.TAB, Keys.ESCAPE)
    assert not browser.one("#bin").is_displayed()
    assert browser.run(label).startswith("reference-long, bin b02")
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.tagName") == "SUMMARY"
    browser.press(Keys.ENTER)
    assert browser.run("return document.activeElement.parentElement.open")
    assert browser.complaints() == []


def test_without_answers_the_page_says_how_to_get_them(
    browser: ReportBrowser, tmp_path: Path
) -> None:
    browser.open(report(tmp_path, with_answers=False))
    browser.click(browser.all("#chart .bin")[3])
    panel = browser.one("#bin").text
    assert "contextcliff report demo --with-answers" in panel
    assert "reference-long" in panel
    assert "consignment" not in browser.driver.page_source
    assert browser.complaints() == []


def test_without_scripts_it_is_still_a_report(browser: ReportBrowser, page: Path) -> None:
    with browser.without_scripts():
        browser.open(page)
        assert "382 tokens" in browser.one("main").text
        assert len(browser.all("#chart .mark")) == 20
        assert len(browser.all("#chart .curve")) == 2
        assert len(browser.all("details table")) > 3
        assert not browser.one("#switches").is_displayed()


def test_what_a_model_says_is_text(browser: ReportBrowser, tmp_path: Path) -> None:
    browser.open(report(tmp_path, hostile=True))
    assert browser.driver.title == HOSTILE
    assert browser.one("h1").text == HOSTILE
    assert browser.one(".card h2").text.startswith("m<b onmouseover=alert(1)>x</b>")
    assert "\u202e" not in browser.driver.page_source
    browser.click(browser.all("#chart .bin")[4])
    answer = browser.one("#bin .answer").text
    assert answer.startswith(f"{HOSTILE}\\u001b[31m")
    for element in browser.all(".folds summary"):
        element.click()
    assert not browser.all("main script, main img[src='x'], main b")
    assert browser.driver.title == HOSTILE
    assert browser.complaints() == []


def test_markup_that_got_in_would_neither_run_nor_fetch(browser: ReportBrowser, page: Path) -> None:
    browser.open(page)
    title = browser.driver.title
    browser.run(f"""
        const script = document.createElement("script"), image = document.createElement("img");
        script.textContent = "{OWN}";
        image.setAttribute("onerror", "{OWN}");
        image.src = "http://127.0.0.1:9/";
        document.body.append(script, image);
        document.body.insertAdjacentHTML("beforeend", "<p style='color:red'>");
    """)
    refused = " ".join(text for text in browser.complaints() if "Content Security Policy" in text)
    for kind in ("script", "img", "style"):
        assert f"{kind}-src" in refused
    assert browser.driver.title == title


def test_a_phone_reads_it_without_scrolling_sideways(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, phone=True)
    cap = browser.run("return document.querySelector('.cap').getBoundingClientRect().bottom")
    assert cap < 400
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.click(browser.all("#chart .bin")[2])
    assert browser.one("#bin").is_displayed()
    assert browser.run("return document.documentElement.scrollWidth") == 360


LONG = f"{'n' * 200}/\u0646\u0645\u0648\u0630\u062c"


def test_long_names_empty_bins_and_caps_at_the_edge(browser: ReportBrowser, tmp_path: Path) -> None:
    measured, other = (answered(name, l70=900)[0] for name in (LONG, "other"))
    *bins, last = measured.bins
    empty = replace(last, n=0, mean=None, ci_low=None, ci_high=None, missing=20)
    halves = [replace(b, mean=0.125, ci_low=0.0, ci_high=0.625) for b in bins]
    results = [
        replace(measured, bins=[*halves, empty], safe_cap_tokens=6000, caps_by_tolerance=[]),
        replace(other, safe_cap_tokens=5900, caps_by_tolerance=[]),
    ]
    file = write_report(results, None, tmp_path, title=LONG).html
    for phone in (False, True):
        browser.open(file, phone=phone)
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        assert len(browser.all("#chart .none")) == 1
        (label,) = browser.all("#chart .name")  # the caps are too near for two
        inside = "return arguments[0].getBBox().x + arguments[0].getBBox().width"
        assert phone or label.text == "cap 5,900"
        assert browser.run(inside, label) < browser.run(inside, browser.one("#chart .cap"))
    browser.point_at(browser.all("#chart .bin")[4])
    assert "exact match 0.12 [0.00, 0.62], n = 20" in browser.one("#hint").text
    for words in (browser.one("#note"), browser.one("#note ~ p")):  # the number after the name
        assert "\u2069 6,000" in words.text or "\u2069: 6,000" in words.text
    with browser.without_scripts():
        browser.open(file)
        assert [one.text for one in browser.all("#chart .name")] == ["cap 5,900"]
    assert browser.complaints() == []


def test_on_paper_all_of_it_is_there_on_a4(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, dark=True)
    questions = [element.text for element in browser.all(".folds summary h2")]
    paper = pypdfium2.PdfDocument(browser.paper())
    assert {tuple(map(round, sheet.get_size())) for sheet in paper} == {(595, 842)}
    words = " ".join(" ".join(sheet.get_textpage().get_text_bounded().split()) for sheet in paper)
    assert len(questions) > 3
    for text in (*questions, "382 tokens", "Sensitivity of the cap", "identity: 3f9c2ab1d0e4"):
        assert text in words
    assert not browser.all(".folds details[open]")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(browser: ReportBrowser, page: Path, dark: bool) -> None:
    require("axe")
    browser.open(page, dark=dark)
    browser.click(browser.all("#chart .bin")[5])
    browser.point_at(browser.all("#chart .bin")[6])
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.accessibility() == []
    browser.run("document.body.append(document.createElement('img'))")
    assert len(browser.accessibility()) > 0
