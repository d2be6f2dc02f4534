"""The picture of sensitivity, and the page that shows it."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity
from contextcliff_dagster.reporting.length_profile.page import all_pictures
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.reports import results_of, sample


def test_two_models_are_two_panels_and_the_same_bytes_each_time() -> None:
    one, two = (sample(model)[0] for model in ("a", "b"))
    single, both = plot_sensitivity(results_of([one])), plot_sensitivity(results_of([one, two]))
    assert single is not None
    assert both is not None
    assert both == plot_sensitivity(results_of([one, two]))
    heights = [Image.open(io.BytesIO(png)).height for png in (single, both)]
    assert heights[1] > heights[0]


def test_results_that_varied_nothing_have_no_picture(tmp_path: Path) -> None:
    plain = {**sample("a")[0], "sensitivity": []}
    assert plot_sensitivity(results_of([plain])) is None
    files = write_report(results_of([plain]), None, tmp_path, title="t")
    assert not (tmp_path / "sensitivity.png").exists()
    assert page_picture() not in files.html.read_text("utf-8")


def page_picture() -> str:
    """How the page begins the picture."""
    (alt,) = (one.alt for one in all_pictures() if one.file == "sensitivity.png")
    return f'<img alt="{alt}" src="data:image/png;base64,'


def test_the_page_holds_the_picture_that_lies_beside_it(tmp_path: Path) -> None:
    results = [sample(model)[0] for model in ("a", "b")]
    files = write_report(results_of(results), None, tmp_path, title="t")
    assert (tmp_path / "sensitivity.png").read_bytes().startswith(b"\x89PNG")
    assert files.html.read_text("utf-8").count(page_picture()) == 1
