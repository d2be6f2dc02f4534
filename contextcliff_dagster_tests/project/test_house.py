"""The layout keeps its limits, as `benchmarks/house.py` counts them."""

from __future__ import annotations

import runpy

from contextcliff_dagster_tests.support.paths import CHECKOUT

STRUCTURE = {
    "import cycles",
    "inner rooms of inference",
    "inner rooms of analysis",
    "files in the largest folder",
    "imports of tests",
}


def test_the_limits_of_the_layout_hold() -> None:
    figures = runpy.run_path(str(CHECKOUT / "benchmarks" / "house.py"))["figures"]()
    by_name = {figure.name: figure for figure in figures}
    assert by_name.keys() >= STRUCTURE
    assert by_name["modules of the product"].value > 300, "nothing was counted"
    broken = [by_name[name] for name in STRUCTURE if by_name[name].value > by_name[name].limit]
    assert not broken
