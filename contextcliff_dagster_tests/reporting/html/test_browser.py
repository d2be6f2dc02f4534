"""report.html in a browser: opened from a file, pointed at, clicked, walked by keys, printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from selenium.webdriver.common.keys import Keys

from contextcliff_dagster.contracts.results.cliffs import CapAtTolerance, SensitivityRow
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
    shapes = "[...document.querySelectorAll(arguments[0])].map(one => one.getAttribute('d') ?? '')"
    found: list[str] = browser.run(f"return {shapes}", f"#chart {css}")
    return found


def test_point_click_and_switch(browser: ReportBrowser, page: Path) -> None:
    browser.open(page)
    browser.reads(".card .cap", "382 tokens")
    browser.until(lambda: len(browser.all("#chart .bin")) == 20)
    browser.point_at(browser.all("#chart .bin")[5])
    browser.reads("#hint", "reference-short", "bin b05: 624 to 997 tokens", "n = 20")
    browser.click(browser.all("#chart .bin")[5])
    browser.reads("#bin", "Bin b05: 624 to 997 tokens", "consignment", "evidence at")
    browser.until(lambda: browser.all("#bin .given > .right"))
    browser.until(lambda: browser.all("#bin .given > .wrong"))
    browser.one("#bin input[value=wrong]").click()
    browser.until(lambda: not browser.all("#bin .asked:not(:has(.wrong))"))
    assert browser.all("#bin .asked .wrong")

    caps = drawn(browser, ".cap")
    choose(browser, "tolerance", "0.1")
    browser.until(lambda: drawn(browser, ".cap") != caps)
    assert len(caps) == len(drawn(browser, ".cap")) == 2
    browser.reads("#note", "tolerated drop of 10% (the study's own is 30%)")
    choose(browser, "axis", "linear")
    browser.until(lambda: "log" not in browser.one("#chart .axis").text)
    choose(browser, "points", "points")
    browser.until(lambda: len(drawn(browser, ".points")) == 2)
    choose(browser, "score", "f1")
    browser.until(lambda: not drawn(browser, ".curve") and not drawn(browser, ".cap"))
    browser.reads("#note", "A model without a fit of this score has no curve or cap here.")
    choose(browser, "models", "1")
    browser.until(lambda: len(browser.all("#chart .bin")) == 10)
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    before = browser.run(ground)
    browser.one("#theme button").click()
    browser.one("#theme button").click()
    browser.reads("#theme button", "Theme: Dark")
    browser.until(lambda: browser.run(ground) != before)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.complaints() == []


def test_the_fold_about_answers_lists_the_wrong_ones(
    browser: ReportBrowser, page: Path, tmp_path: Path
) -> None:
    browser.open(page)
    browser.until(lambda: browser.all("#wrong .asked"))
    browser.run("document.querySelector('#wrong').closest('details').open = true")
    assert len(browser.all("#wrong .asked")) <= 100
    assert browser.all("#wrong .given > .wrong")
    assert not browser.all("#wrong .given > .right")
    browser.open(report(tmp_path, with_answers=False))
    browser.until(
        lambda: (
            "To include them: contextcliff report"
            in browser.run("return document.querySelector('#wrong').textContent")
        )
    )


def test_another_score_draws_its_own_curve_and_caps(browser: ReportBrowser, tmp_path: Path) -> None:
    made = [answered("reference-short", l70=440, seed=1)]
    (result, *_) = made[0]
    f1 = SensitivityRow(
        factor="score", value="token F1", reported=False, n=200, verdict=result.verdict,
        safe_cap_tokens=700, location_tokens=None, baseline=0.9,
        curve=[replace(point, mean=point.mean / 2) for point in result.curve],
        caps_by_tolerance=[CapAtTolerance(0.1, 200), CapAtTolerance(0.3, 700)],
    )  # fmt: skip
    varied = replace(result, sensitivity=[*result.sensitivity, f1])
    evidence = evidence_of(made, with_answers=True)
    browser.open(write_report([varied], made[0][1], tmp_path, title="t", evidence=evidence).html)
    (primary,) = drawn(browser, ".curve")
    choose(browser, "score", "f1")
    browser.reads(
        "#note", "Safe cap at a tolerated drop of 30%", "700 tokens", "rests on exact match"
    )
    (curve,) = drawn(browser, ".curve")
    assert curve != primary
    (cap,) = drawn(browser, ".cap")
    choose(browser, "tolerance", "0.1")
    browser.reads("#note", "200 tokens")
    assert drawn(browser, ".cap") != [cap]


def test_keys_alone(browser: ReportBrowser, page: Path) -> None:
    browser.open(page)

    def focused(attribute: str, *begins: str) -> bool:
        script = "return document.activeElement.getAttribute(arguments[0]) ?? ''"
        return bool(browser.run(script, attribute).startswith(begins))

    def tab() -> None:
        before = browser.driver.switch_to.active_element
        browser.press(Keys.TAB)
        browser.until(lambda: browser.driver.switch_to.active_element != before)

    for _ in range(30):
        tab()
        if focused("aria-label", "reference-short, bin b0"):
            break
    assert focused("aria-label", "reference-short, bin b00, 60 to 95 tokens: exact match ")
    browser.reads("#hint")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    browser.until(lambda: focused("aria-label", "reference-long, bin b02"))
    browser.press(Keys.ENTER)
    browser.reads("#bin")
    browser.until(lambda: focused("aria-expanded", "true"))
    browser.press(Keys.TAB, Keys.ESCAPE)
    browser.until(lambda: not browser.one("#bin").is_displayed())
    browser.until(lambda: focused("aria-label", "reference-long, bin b02"))
    tab()
    assert browser.run("return document.activeElement.tagName") == "SUMMARY"
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.run("return document.activeElement.parentElement.open"))
    assert browser.complaints() == []


def test_without_answers_the_page_says_how_to_get_them(
    browser: ReportBrowser, tmp_path: Path
) -> None:
    browser.open(report(tmp_path, with_answers=False))
    browser.click(browser.all("#chart .bin")[3])
    browser.reads("#bin", "contextcliff report demo --with-answers", "reference-long")
    assert "consignment" not in browser.driver.page_source
    assert browser.complaints() == []


def test_without_scripts_it_is_still_a_report(browser: ReportBrowser, page: Path) -> None:
    with browser.without_scripts():
        browser.open(page)
        browser.reads("main", "382 tokens")
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
    assert browser.reads("#bin .answer", HOSTILE).startswith(f"{HOSTILE}\\u001b[31m")
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
    refused: list[str] = []

    def refused_all() -> bool:
        refused.extend(one for one in browser.complaints() if "Content Security Policy" in one)
        return all(f"{kind}-src" in " ".join(refused) for kind in ("script", "img", "style"))

    browser.until(refused_all)
    assert browser.driver.title == title


def test_a_phone_reads_it_without_scrolling_sideways(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, phone=True)
    cap = browser.run("return document.querySelector('.cap').getBoundingClientRect().bottom")
    assert cap < 400
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.click(browser.all("#chart .bin")[2])
    browser.reads("#bin")
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
    browser.reads("#hint", "exact match 0.12 [0.00, 0.62], n = 20")
    for words in (browser.one("#note"), browser.one("#note ~ p")):  # the number after the name
        assert "\u2069 6,000" in words.text or "\u2069: 6,000" in words.text
    with browser.without_scripts():
        browser.open(file)
        assert [one.text for one in browser.all("#chart .name")] == ["cap 5,900"]
    assert browser.complaints() == []


def test_on_paper_all_of_it_is_there_on_a4(browser: ReportBrowser, page: Path) -> None:
    browser.open(page, dark=True)
    questions = [element.text for element in browser.all(".folds summary h2")]
    words = browser.words_on_a4()
    assert len(questions) > 3
    for text in (*questions, "382 tokens", "Sensitivity of the cap", "identity: 3f9c2ab1d0e4"):
        assert text in words
    assert not browser.all(".folds details[open]")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(browser: ReportBrowser, page: Path, dark: bool) -> None:
    require("axe")
    browser.open(page, dark=dark)
    browser.click(browser.all("#chart .bin")[5])
    browser.reads("#bin")
    browser.point_at(browser.all("#chart .bin")[6])
    browser.reads("#hint")
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.accessibility() == []
    browser.run("document.body.append(document.createElement('img'))")
    assert len(browser.accessibility()) > 0
