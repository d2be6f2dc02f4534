"""Many models: one page over all, bounded in size, and one page each that no name can misplace."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.figures.report_figure import MOST_PANELS, plot_small_multiples
from contextcliff_dagster.reporting.length_profile.page import MANY
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.reports import results_of, sample

HOSTILE = ["../../etc/x", "..", "a/b", "a-b", "A-B", "<b>", "a|b](http://e.vil)"]


def models(names: list[str]) -> tuple[list[Cliffs], pd.DataFrame]:
    made = [sample(name, l70=300 + 90 * i, seed=i, per_bin=3) for i, name in enumerate(names)]
    return results_of([cliffs for cliffs, _ in made]), pd.concat([rows for _, rows in made])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of seven models with names that want to be elsewhere."""
    folder = tmp_path_factory.mktemp("many") / "deep" / "report"
    assert len(HOSTILE) == MANY + 1
    results, records = models(HOSTILE)
    write_report(results, records, folder, title="Many", notes=["measured twice"])
    return folder


def test_each_model_has_a_page_that_the_overview_leads_to(written: Path) -> None:
    results, _ = models(HOSTILE)
    for kind in ("md", "html"):
        page = (written / f"report.{kind}").read_text("utf-8")
        links = re.findall(rf"models/[A-Za-z0-9._-]+/report\.{kind}", page)
        assert len(links) == len(set(map(str.casefold, links))) == len(HOSTILE)
        for link, result in zip(links, results, strict=True):  # in the order given
            assert f"{result.safe_cap_tokens:,} tokens" in (written / link).read_text("utf-8")


def test_no_name_writes_outside_of_the_report(written: Path) -> None:
    above = written.parents[1]
    assert [path.name for path in above.iterdir()] == ["deep"]
    assert [path.name for path in written.parent.iterdir()] == ["report"]
    assert {path.parent.parent for path in (written / "models").glob("*/*")} == {written / "models"}


def test_the_overview_lists_caps_with_intervals_in_no_order_of_merit(written: Path) -> None:
    page = (written / "report.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if "/report.md) |" in line]
    assert len(rows) == len(HOSTILE)
    assert all(len(re.findall(r"\[[\d,.%]+, [\d,.%]+\]", row)) == 3 for row in rows)
    assert "in no order of merit" in page
    assert "- measured twice." in page
    machine = json.loads((written / "report.json").read_text("utf-8"))
    assert [model["model"] for model in machine["models"]] == HOSTILE


def test_few_models_leave_no_page_of_many_behind(tmp_path: Path) -> None:
    (tmp_path / "models" / "of-an-earlier-report").mkdir(parents=True)
    write_report(models(["m1", "m2"])[0], None, tmp_path, title="t")
    assert list((tmp_path / "models").iterdir()) == []
    assert (tmp_path / "sensitivity.png").exists()


@pytest.mark.parametrize("many", [7, MOST_PANELS + 30])
def test_the_picture_is_never_larger_than_four_thousand_pixels(many: int) -> None:
    (one,) = models(["a model with quite a long name, of some vendor or other"])[0]
    png = plot_small_multiples([one] * many)
    assert max(Image.open(io.BytesIO(png)).size) <= 4000


def test_a_picture_of_nothing_measured_is_drawn() -> None:
    (one,) = models(["m"])[0]
    bare = replace(one, bins=[], curve=[], zones=[], safe_cap_tokens=None, cliff=None)
    assert plot_small_multiples([bare] * 7).startswith(b"\x89PNG")
