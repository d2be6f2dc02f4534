"""The pictures: decodable, large enough, the same bytes every time, and drawn without pyplot."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from contextcliff_dagster.reporting.figures.house import (
    drawable,
    look,
    shortened,
    token_label,
    token_ticks,
)
from contextcliff_dagster.reporting.figures.report_figure import (
    _limits,
    draw_scores,
    plot_report,
    plot_scores,
)
from contextcliff_dagster_tests.support.records.reports import results_of, sample, sample_pair


def opened(png: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(png))
    picture.load()
    return picture


def ink(picture: Image.Image) -> float:
    return float((np.asarray(picture.convert("L")) < 200).mean())


def test_the_picture_is_large_decodable_and_carries_no_metadata() -> None:
    picture = opened(_plotted(*sample_pair()))
    assert picture.format == "PNG"
    assert picture.width >= 1200
    assert picture.height >= 700
    assert picture.info == {}


def test_same_input_same_bytes_even_under_another_matplotlibrc() -> None:
    import matplotlib

    cliffs, records = sample_pair()
    first = plot_report(results_of(cliffs), records)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 10}):
        assert plot_report(results_of(cliffs), records) == first


def test_the_order_of_the_records_does_not_move_a_bin_or_a_curve() -> None:
    cliffs, records = sample_pair()
    assert (
        opened(plot_report(results_of(cliffs), records.iloc[::-1])).size
        == opened(plot_report(results_of(cliffs), records)).size
    )


def _plotted(cliffs: list[dict[str, Any]], records: pd.DataFrame) -> bytes:
    return plot_report(results_of(cliffs), records)


@pytest.mark.parametrize("models", [1, 3, 6, 8])
def test_any_number_of_models_fits(models: int) -> None:
    made = [
        sample(f"model-{i}-" + "long-name-" * i, l70=250 * (i + 1), seed=i) for i in range(models)
    ]
    picture = opened(plot_report(results_of([m[0] for m in made]), pd.concat([m[1] for m in made])))
    assert picture.width == 1840
    assert np.asarray(picture.convert("L"))[:, -12:].min() > 250  # nothing runs off the page


NOTHING: dict[str, Any] = {
    "verdict": "insufficient_data",
    "safe_cap_tokens": None,
    "cliff": None,
    "zones": [],
    "curve": [],
}


def _lacking(**changes: Any) -> dict[str, Any]:
    cliffs, _ = sample()
    for b in cliffs["bins"]:
        b.update(ci_low=None, ci_high=None, sd=None)
    return {**cliffs, **changes}


@pytest.mark.parametrize(
    "cliffs",
    [
        _lacking(**NOTHING, bins=[]),
        _lacking(**NOTHING),
        _lacking(window_tokens=None),
        _lacking(window_tokens=10_000_000),
        _lacking(model="模型 🦙 $x^2$ \\frac{1}{2} \x00\n" * 5),
        {**sample(bins=1, low=900, high=1000)[0], "curve": []},
        sample(low=1000, high=1001, per_bin=1, bins=1)[0],
    ],
    ids=["empty", "nulls", "no window", "far window", "odd name", "one bin", "one length"],
)
def test_what_is_missing_is_left_out(cliffs: dict[str, Any]) -> None:
    assert opened(plot_report(results_of([cliffs]), None)).width == 1840


def test_a_window_far_away_does_not_squeeze_the_data() -> None:
    near, records = sample(window=None)
    far, _ = sample(window=10_000_000)
    pictures = [opened(plot_report(results_of([c]), records)) for c in (near, far)]
    columns = [np.flatnonzero((np.asarray(one)[700:900] < 120).any((0, 2))) for one in pictures]
    assert abs(int(columns[0].max()) - int(columns[1].max())) < 60


def test_documents_that_overflow_do_not_squeeze_the_data() -> None:
    scored, records = sample(window=8192)
    beyond = [
        {
            **scored["bins"][0],
            "bin": f"b{at}",
            **dict.fromkeys(("edge_low", "min_tokens"), 1_000 * at),
            **dict.fromkeys(("edge_high", "median_tokens", "max_tokens"), 1_000 * at + 500),
            **dict.fromkeys(("n", "n_documents"), 0),
            **dict.fromkeys(("mean", "sd", "ci_low", "ci_high")),
            "missing": 20,
        }
        for at in (16, 64)
    ]
    overflown = {**scored, "bins": [*scored["bins"], *beyond]}
    lengths = [records.length_tokens.to_numpy()]
    assert _limits(results_of([overflown]), lengths) == _limits(results_of([scored]), lengths)
    unknown = [{**b, "mean": 0.5} for b in beyond]  # scored, of a table that states no n
    assert _limits(results_of([{**scored, "bins": unknown}]), lengths)[1] > 64_000
    assert opened(plot_report(results_of([overflown]), records)).width == 1840


def test_two_models_stay_distinct_in_grey() -> None:
    looks = [look(i) for i in range(6)]
    assert len({x.marker for x in looks}) == len({x.dash for x in looks}) == 6
    assert len({look(i) for i in range(24)}) == 24


def test_many_answers_become_columns_and_not_a_smear() -> None:
    cliffs, records = sample(per_bin=1000)
    graded, graded_records = sample(per_bin=1000, graded=True)
    assert ink(opened(plot_report(results_of([cliffs]), records))) < 0.2
    assert ink(opened(plot_report(results_of([graded]), graded_records))) < 0.25


def test_records_of_other_models_are_not_drawn() -> None:
    cliffs, records = sample()
    other = records.assign(model="someone else")
    assert plot_report(results_of([cliffs]), other) == plot_report(results_of([cliffs]), None)


def test_ticks_are_round_lengths_with_human_labels() -> None:
    assert [token_label(t) for t in token_ticks(60, 8192)] == [
        "64", "128", "256", "512", "1k", "2k", "4k", "8k",
    ]  # fmt: skip
    assert [token_label(t) for t in token_ticks(200, 131072)][-1] == "128k"
    assert len(token_ticks(1, 2**21)) <= 9
    assert len(token_ticks(630, 1500)) >= 3
    assert token_label(1.5 * 2**20) == "1.5M"


def test_text_that_the_font_cannot_draw_is_marked_and_shortened_in_its_middle() -> None:
    assert drawable("模型-ü\n$x$") == "\ufffd\ufffd-ü $x$"
    assert shortened("Qwen/Qwen2.5-7B-Instruct-AWQ", 16) == "Qwen/Qwen…ct-AWQ"


FEW, MANY = ("one",), tuple(f"vendor/model-{i}-instruct" for i in range(6))


def results(names: tuple[str, ...]) -> tuple[list[Any], pd.DataFrame]:
    made = [sample(name, l70=250 * (i + 1), seed=i) for i, name in enumerate(names)]
    return results_of([cliffs for cliffs, _ in made]), pd.concat([rows for _, rows in made])


@pytest.mark.parametrize("names", [FEW, MANY])
@pytest.mark.parametrize("width", [2.2, 3.3, 6.5])
def test_a_figure_of_any_width_has_texts_and_marks_that_fit(
    names: tuple[str, ...], width: float
) -> None:
    figure = Figure(figsize=(width, 0.75 * width), dpi=300, layout="constrained")
    axes = figure.add_subplot()
    mine = axes.plot([100, 200], [0.5, 0.5], lw=5, ms=12, marker="o")[0]
    draw_scores(axes, *results(names))
    figure.draw_without_rendering()
    assert (mine.get_linewidth(), mine.get_markersize()) == (5, 12)
    marks = [line for line in axes.lines if line is not mine]
    assert max(line.get_markersize() for line in marks) <= max(3.7, 1.5 * width)
    assert axes.get_window_extent().width > 0.55 * width * figure.dpi
    page, legend = figure.bbox, axes.get_legend()
    texts = [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.texts]
    texts += legend.get_texts() if legend else []
    for text in filter(lambda text: text.get_text(), texts):
        box = text.get_window_extent()
        assert page.x0 <= box.x0
        assert box.x1 <= page.x1, text
    assert axes.get_xlabel().startswith("document length in tokens")
    assert axes.get_ylabel() == "score (exact match)"
    assert bool(legend) == (len(names) > 1)
    labels = [tick.get_window_extent() for tick in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(labels))


def test_models_in_a_column_have_colours_of_their_own() -> None:
    axes = Figure(figsize=(3.3, 2.4)).add_subplot()
    draw_scores(axes, *results(MANY))
    legend = axes.get_legend()
    assert len({line.get_color() for line in legend.get_lines()}) == len(MANY)
    assert [text.get_text().split(":")[0][:9] for text in legend.get_texts()] == ["vendor/mo"] * 6


def test_prints_hold_truetype_fonts_or_text_and_no_date() -> None:
    cliffs, records = results(("first-model", "second"))
    pdf, svg = (plot_scores(cliffs, records, kind, 3.3) for kind in ("pdf", "svg"))
    assert pdf.startswith(b"%PDF")
    assert b"/CIDFontType2" in pdf
    assert b"/FontFile2" in pdf
    for kept in (b"/Type3", b"CreationDate", b"<dc:date>"):
        assert kept not in pdf + svg
    text = svg.decode()
    assert "first-model: safe up to" in text
    assert float(re.findall(r'width="([\d.]+)pt"', text)[0]) == pytest.approx(3.3 * 72)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_prints_are_the_same_bytes_in_another_process_and_under_another_rc(kind: str) -> None:
    import matplotlib

    script = (
        "import hashlib, sys\n"
        "from contextcliff_dagster.reporting.figures.report_figure import plot_scores\n"
        "from contextcliff_dagster_tests.support.records.reports import results_of, sample\n"
        "one, records = sample()\n"
        f"picture = plot_scores(results_of([one]), records, {kind!r}, 3.3)\n"
        "print(hashlib.sha256(picture).hexdigest())\n"
    )
    other = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    one, records = sample()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "pdf.fonttype": 3}):
        here = plot_scores(results_of([one]), records, kind, 3.3)
    assert other.stdout.decode().strip() == hashlib.sha256(here).hexdigest()


def test_drawing_needs_no_pyplot() -> None:
    script = (
        "import sys\n"
        "from contextcliff_dagster.reporting.figures.report_figure import plot_report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from contextcliff_dagster_tests.support.records.reports import results_of, sample\n"
        "plot_report(results_of([sample()[0]]), None)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
