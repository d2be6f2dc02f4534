"""The gallery's index: every result with its intervals and its report, names as text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.reporting.gallery import Entry, write_gallery
from contextcliff_dagster_tests.support.records.reports import result_of, sample
from contextcliff_dagster_tests.support.report_browser import ReportBrowser

NAME = "<img src=x onerror=\"document.title='owned'\">|a"


def entries() -> list[Entry]:
    """Three models, one of them on two tasks; one without a cap."""
    short, long, odd = (result_of(sample(name)[0]) for name in ("short", "long", NAME))
    other = replace(short, task="two_hop", safe_cap_tokens=None, campaign="2026-11-22")
    results = [short, long, other, replace(odd, verdict=odd.verdict.STABLE, cliff=None)]
    return [
        Entry(f"{i}.zip", f"{i}" * 64, f"reports/r{i}/report", result)
        for i, result in enumerate(results)
    ]


def test_every_result_has_its_intervals_and_leads_to_its_report(tmp_path: Path) -> None:
    write_gallery(entries(), tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    cells = re.findall(r'<div class="entry".*?</div>', page, re.S)
    assert len(cells) == 4
    assert sorted(re.findall(r'href="([^"]+)"', "".join(cells))) == [
        f"reports/r{i}/report.html" for i in range(4)
    ]
    for cell in cells:
        assert re.search(r"baseline exact match \d\.\d\d \[\d\.\d\d, \d\.\d\d\]", cell)
        assert "200 examples" in cell
        assert "95% confidence" in cell
    assert sum("midpoint of the drop" in cell for cell in cells) == 3
    assert sum("no safe cap" in cell for cell in cells) == 1
    text = (tmp_path / "index.md").read_text("utf-8")
    assert text.count("/report.md)") == 4
    assert "this is not a ranking" in text
    machine = json.loads((tmp_path / "gallery.json").read_text("utf-8"))["results"]
    models = [row["model"] for row in machine]
    assert models == [entry.result.model for entry in entries()]  # not by cap
    assert {row["safe_cap_tokens"] for row in machine} == {382, None}


def test_what_a_file_is_called_and_why_there_is_no_cap(tmp_path: Path) -> None:
    first, *_ = entries()
    why = "The baseline score is 0.02"
    none = replace(first.result, safe_cap_tokens=None, safe_cap_reason=why)
    again = Entry("a; date.zip", "a" * 64, "reports/r9/report", none)
    write_gallery([first, again], tmp_path)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert why in page
    assert "contextcliff import &#x27;a; date.zip&#x27;" in page  # to be copied into a shell
    for name in ("0.zip", "a; date.zip"):  # two files of one campaign are told apart
        assert f", in {name}</span>" in page


def test_same_results_same_bytes(tmp_path: Path) -> None:
    files = ("index.html", "index.md", "gallery.json")
    write_gallery(entries(), tmp_path)
    first = [(tmp_path / name).read_bytes() for name in files]
    write_gallery(entries(), tmp_path)
    assert [(tmp_path / name).read_bytes() for name in files] == first


@pytest.mark.browser
def test_filters_hide_what_is_not_chosen(browser: ReportBrowser, tmp_path: Path) -> None:
    from selenium.webdriver.support.select import Select

    browser.open(write_gallery(entries(), tmp_path))

    def shown() -> list[str]:
        return [one.text.splitlines()[0] for one in browser.all(".entry") if one.is_displayed()]

    def columns() -> list[str]:
        return [one.text for one in browser.all("#caps thead th") if one.is_displayed()]

    assert len(shown()) == 4
    assert columns() == ["model", "lookup", "two_hop"]
    pick = {name: Select(browser.one(f"select[name={name}]")) for name in ("model", "verdict")}
    pick["model"].select_by_visible_text("short")
    assert shown() == ["382 tokens", "no safe cap"]
    assert browser.one("#count").text == "2 of 4 results"
    pick["verdict"].select_by_visible_text("no large drop found")
    assert shown() == []
    pick["model"].select_by_visible_text("all")
    assert shown() == ["382 tokens"]
    assert columns() == ["model", "lookup"]
    assert NAME in browser.one("#caps tbody").text
    assert browser.complaints() == []
