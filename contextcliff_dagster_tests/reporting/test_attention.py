"""Attention in reports: pictures, page, terminal; nothing of it where it was not measured."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.figures.attention import attention_panels, plot_attention
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster.reporting.terminal import risk_report
from contextcliff_dagster_tests.support.drawn_attention import Planted, draw
from contextcliff_dagster_tests.support.report_browser import ReportBrowser

ROPE = Planted(fall=5_000, jump=5_000, count=300)


@cache
def _result(planted: Planted, measured: bool = True) -> Cliffs:
    records, attention = draw(planted)
    context = ProfileContext("m", window_tokens=16_384, attention=attention if measured else None)
    return profile_model(records, [], AnalysisSettings(second_opinions=False), context).cliffs


def test_entropy_with_layers_next_to_the_score_and_shares_that_add_up() -> None:
    result = _result(ROPE)
    entropy, shares = attention_panels(result)
    assert [one.name.partition(",")[0] for one in entropy.series] == ["score", "entropy"]
    assert entropy.cap == result.safe_cap_tokens is not None
    for (_, least, most), point in zip(
        entropy.series[1].band, entropy.series[1].points, strict=True
    ):
        assert least < point.mean < most
    for points in zip(*(one.points for one in shares.series), strict=True):
        assert sum(point.mean for point in points) == pytest.approx(1.0)


def test_the_rest_is_left_out_where_some_evidence_is_unknown() -> None:
    known = attention_panels(_result(Planted()))[1]
    unknown = attention_panels(_result(Planted(evidence=False)))[1]
    assert [one.name for one in unknown.series] == ["on the first tokens", "on the rest"]
    assert len(known.series) == 3


def test_the_picture_is_the_same_twice_and_absent_without_attention() -> None:
    png = plot_attention([_result(ROPE)])
    assert png is not None
    assert png == plot_attention([_result(ROPE)])
    assert Image.open(io.BytesIO(png)).width == 1840
    assert plot_attention([_result(ROPE, False)]) is None


def test_terminal_page_and_summary_say_it(tmp_path: Path) -> None:
    result = _result(ROPE)
    assert result.attention is not None
    shown = risk_report(result)
    files = write_report([result], None, tmp_path, title="Attention")
    page, summary = files.html.read_text("utf-8"), files.md.read_text("utf-8")
    recommended = shown.partition("RECOMMENDATION:")[2].partition("\n\n")[0]
    rope = "RoPE extrapolation failure predicted at about 3"
    assert recommended.splitlines()[-1].startswith(rope)
    assert (shown.count(rope), summary.count(rope)) == (1, 1)
    for words in result.attention.says:
        assert words.replace("'", "&#x27;") in page
        assert words in shown
        assert words.partition(" [")[0].split(":")[0] in summary
    assert "verdict and cap rest on the scores alone" in summary
    assert "![Attention entropy" in summary
    assert (tmp_path / "attention.png").exists()


def test_without_attention_nothing_of_it_is_shown(tmp_path: Path) -> None:
    files = write_report([_result(ROPE, False)], None, tmp_path, title="Plain")
    assert "ttention" not in risk_report(_result(ROPE, False))
    assert "ttention" not in files.md.read_text("utf-8")
    assert 'id="attention"' not in files.html.read_text("utf-8")
    assert not (tmp_path / "attention.png").exists()


@pytest.mark.browser
def test_marks_are_pointed_at_and_walked_by_keys(browser: ReportBrowser, tmp_path: Path) -> None:
    files = write_report([_result(ROPE)], None, tmp_path, title="Attention")
    browser.open(files.html, dark=True)
    marks = browser.all("#attention figure:first-of-type .bin")
    assert len(marks) == 20
    browser.point_at(marks[13])
    hint = browser.one("#attention figure:first-of-type .hint")
    assert "entropy 0." in hint.text
    assert "layers 0." in hint.text
    marks[13].send_keys("\ue014")  # arrow right
    assert "bin b04" in hint.text
    assert not browser.complaints()
