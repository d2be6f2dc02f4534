"""A comparison's pages: one statement in Markdown and HTML, and nothing that a name smuggles in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.contracts.results import Comparison, from_json
from contextcliff_dagster.reporting.comparison import comparison_html, write_comparison
from contextcliff_dagster_tests.support.records.reports import result_of, sample

OLD = Path(__file__).parents[1] / "support" / "records" / "results_of_0_1_0" / "comparison.json"


@pytest.fixture
def comparison() -> Comparison:
    return from_json(Comparison, json.loads(OLD.read_text("utf-8")))


def test_every_figure_of_a_bin_is_in_both_pages(comparison: Comparison, tmp_path: Path) -> None:
    files = write_comparison(comparison, tmp_path, (None, None))
    assert [file.name for file in files] == [
        f"comparison.{kind}" for kind in ("md", "json", "html", "png")
    ]
    for file in (files.md, files.html):
        text = re.sub(r"\s+", " ", file.read_text("utf-8"))
        for bin in comparison.bins:
            assert f"{bin.edge_low:,} to {bin.edge_high:,}" in text
            if bin.difference is not None:
                words = f"{bin.difference:+.2f} [{bin.ci_low:+.2f}, {bin.ci_high:+.2f}]"
                assert words.replace("+0.00", "0.00") in text


def test_the_page_has_the_difference_without_a_script_and_both_curves_with_one(
    comparison: Comparison,
) -> None:
    curves = (result_of(sample("one")[0]), result_of(sample("other")[0]))
    page = comparison_html(comparison, curves)
    drawing = page[page.index("Difference over document length") : page.index('id="picture"')]
    measured = [bin for bin in comparison.bins if bin.difference is not None]
    assert drawing.count("<title>") == len(measured) > 0
    payload = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert payload is not None
    names = [model["name"] for model in json.loads(payload[1])["models"]]
    assert names == [comparison.a.name, comparison.b.name]
    assert 'id="picture"' not in comparison_html(comparison, (None, None))


def test_hostile_names_are_text_and_paths_are_cut(comparison: Comparison, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    changed = replace(
        comparison,
        a=replace(comparison.a, name=name),
        warnings=["read from /home/jo/secret/scores.csv", "Bearer abcdefgh12345678"],
    )
    files = write_comparison(changed, tmp_path, (result_of(sample("m")[0]), None))
    for file in (files.md, files.json, files.html):
        text = file.read_text("utf-8")
        assert "/home/jo" not in text
        assert "abcdefgh" not in text
    assert "<img src=x" not in files.html.read_text("utf-8")
    assert "read from scores.csv" in files.md.read_text("utf-8")
