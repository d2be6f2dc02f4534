"""The layout keeps its limits, as `benchmarks/house.py` counts them."""

from __future__ import annotations

import runpy

from contextcliff_dagster_tests.support.paths import CHECKOUT


def test_the_limits_of_the_layout_hold() -> None:
    figures = runpy.run_path(str(CHECKOUT / "benchmarks" / "house.py"))["figures"]()
    by_name = {figure.name: figure.value for figure in figures}
    assert by_name["files of the product"] > 300, "nothing was counted"
    assert not [figure for figure in figures if figure.value > figure.limit]
