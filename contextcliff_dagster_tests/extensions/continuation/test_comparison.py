"""Runs compared: the pictures, and what their JSON files say."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.extensions.continuation.figures import UsualRange, collapse_axis
from contextcliff_dagster.extensions.continuation.report.run_page import (
    CompareOptions,
    View,
    compare_results,
)
from contextcliff_dagster_tests.extensions.continuation.made_runs import OLD_CSV, write_made_run


@pytest.fixture(autouse=True)
def _small_pictures() -> None:
    """Pictures have the fineness that they are asked for: it is tested here."""


RANGES = st.tuples(st.floats(-50, 50), st.floats(0.1, 100)).map(
    lambda ends: UsualRange(ends[0], ends[0] + ends[1])
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A usual run, one that collapses, and a CSV file of the first version."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "old.csv").write_text(OLD_CSV, encoding="utf-8")
    return [
        write_made_run(folder / "usual"),
        write_made_run(folder / "gone", collapse_from=4096, name="tiny-2B"),
        folder / "old.csv",
    ]


@given(RANGES, st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=5))
def test_the_axis_keeps_order_and_is_inverted_exactly(
    usual: UsualRange, values: list[float]
) -> None:
    ordered = sorted(values)
    heights = usual.forward(ordered)
    assert (heights[1:] >= heights[:-1]).all()
    assert usual.inverse(heights) == pytest.approx(ordered, rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("invert", [False, True])
@given(values=st.lists(st.floats(-1e4, 1e4), max_size=6))
def test_every_value_is_inside_the_axes(values: list[float], invert: bool) -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    collapse_axis(axes, UsualRange(15, 40), values, invert=invert)
    low, high = sorted(axes.get_ylim())
    assert all(low < value < high for value in [*values, 15, 40])
    assert axes.yaxis_inverted() == invert


@pytest.mark.parametrize(
    ("view", "count"), [("standard", 3), ("rounds", 2), ("enhanced", 1), ("convergence", 1)]
)
def test_each_view_is_a_picture_of_the_wished_fineness(
    view: View, count: int, runs: list[Path], tmp_path: Path
) -> None:
    options = CompareOptions(view, dpi=60, folder=tmp_path / "made")
    done = compare_results(runs[:count], options)
    page = "comparison.html" if view == "standard" else f"comparison-{view}.html"
    names = [f"{view}.png", page, f"{view}.json"]
    assert [path.name for path in done.files] == names
    assert json.loads(done.files[-1].read_text(encoding="utf-8"))["view"] == view
    with Image.open(done.files[0]) as picture:
        assert picture.width == 690
        # Not blank.
        assert len(picture.getcolors(1 << 20) or []) > 20
    again = compare_results(runs[:count], options)
    assert again.files[0].read_bytes() == done.files[0].read_bytes()


def test_the_statistics_are_kept(runs: list[Path], tmp_path: Path) -> None:
    done = compare_results([runs[1]], CompareOptions("enhanced", dpi=50, folder=tmp_path))
    found = json.loads(done.files[-1].read_text(encoding="utf-8"))["statistics"]
    assert found["context_sizes"] == [1024, 2048, 4096, 8192]
    assert set(found["significance_tests"]) == {"2048", "4096", "8192"}
    assert found["significance_tests"]["8192"]["p_value"] < 0.05


def test_convergence_of_several_runs_is_a_picture_each(runs: list[Path], tmp_path: Path) -> None:
    options = CompareOptions("convergence", tolerance=0.3, dpi=50, folder=tmp_path)
    done = compare_results(runs[:2], options)
    assert [path.name for path in done.files] == [
        "convergence-1-tiny-1B_a_b.png",
        "convergence-2-tiny-2B_a_b.png",
        "comparison-convergence.html",
        "convergence.json",
    ]
    first = done.result["runs"][0]["first_size"]
    assert first["word_count"] == 1024


def test_the_same_run_twice_is_told_apart(runs: list[Path], tmp_path: Path) -> None:
    done = compare_results([runs[0], runs[0].parent / "usual"], CompareOptions(folder=tmp_path))
    assert all(str(runs[0]) in run["name"] for run in done.result["runs"])


def test_a_view_says_what_it_lacks(runs: list[Path], tmp_path: Path) -> None:
    def compare(view: View, *paths: Path) -> None:
        compare_results(paths, CompareOptions(view, folder=tmp_path / "none"))

    with pytest.raises(DataError, match="takes one run"):
        compare("enhanced", *runs[:2])
    with pytest.raises(DataError, match="takes one to 6 runs"):
        compare("standard", *runs, *runs, *runs)
    with pytest.raises(DataError, match="only averages"):
        compare("rounds", runs[0], runs[2])
    with pytest.raises(DataError, match="author"):
        compare("convergence", runs[2])
    assert not (tmp_path / "none").exists()


def test_a_run_of_one_size_and_one_round_is_drawn(tmp_path: Path) -> None:
    folder = write_made_run(tmp_path / "run", rounds=1)
    for size in (2048, 4096, 8192):
        (folder / f"context_{size}_results.json").unlink()
    for view in ("standard", "rounds", "enhanced", "convergence"):
        done = compare_results([folder], CompareOptions(view, dpi=50, folder=tmp_path))
        with Image.open(io.BytesIO(done.files[0].read_bytes())) as picture:
            assert picture.height > 300
