"""What a study begins with, and keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.visibility.kept_landscapes import (
    LANDSCAPES,
    grounds_of,
    landscape_file,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.runs.small_study import (
    SMALL,
    small_landscapes,
    small_study,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_landscapes(monkeypatch)


def test_a_flat_benchmark_is_refused_and_nothing_is_listed(tmp_path: Path) -> None:
    study = small_study(tmp_path, SMALL.replace("[toy]", "[toy-flat]"))
    with pytest.raises(StudyError, match=r"'toy-flat' cannot distinguish searches: .*less than"):
        grounds_of(study, Store.default())
    assert LANDSCAPES.frozen(study, Store.default()) is None


def test_a_landscape_that_is_gone_is_made_again_and_is_the_same(tmp_path: Path) -> None:
    study, store = small_study(tmp_path), Store.default()
    before = LANDSCAPES.freeze(study, store)
    assert LANDSCAPES.frozen(study, store) == before
    ground = grounds_of(study, store)["toy"]
    landscape_file(store, "toy", ground.made_of).unlink()
    assert LANDSCAPES.frozen(study, store) is None
    assert LANDSCAPES.freeze(study, store) == before


def test_a_further_benchmark_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    store = Store.default()
    first = grounds_of(small_study(tmp_path), store)["toy"]
    both = small_study(tmp_path, SMALL.replace("[toy]", "[wine, toy]"))
    grounds = grounds_of(both, store)
    assert set(grounds) == {"toy", "wine"}
    assert grounds["toy"].made_of == first.made_of


def test_a_single_run_that_becomes_a_grid_gets_its_landscape(tmp_path: Path) -> None:
    store = Store.default()
    single = SMALL.replace("[hidden, shown]", "[hidden]").replace("[0, 2]", "[0]")
    single = single.replace("seeds: 2", "seeds: 1\n  direction: [shown]\n  start: [default]")
    study = small_study(tmp_path, single)
    assert LANDSCAPES.frozen(study, store) is None
    assert LANDSCAPES.freeze(study, store).values == {"toy": None}
    assert grounds_of(study, store)["toy"].landscape is None
    grid = small_study(tmp_path, single.replace("seeds: 1", "seeds: 2"))
    assert LANDSCAPES.frozen(grid, store) is None
    landscape = grounds_of(grid, store)["toy"].landscape
    assert landscape is not None
    kept = grounds_of(study, store)["toy"].landscape
    assert kept is not None
    assert kept.made_of == landscape.made_of
    landscape_file(store, "toy", landscape.made_of).unlink()
    assert grounds_of(study, store)["toy"].landscape is None, "no single run tabulates"


def test_a_partition_is_a_benchmark(tmp_path: Path) -> None:
    study, store = small_study(tmp_path), Store.default()
    keys = LANDSCAPES.keys(study)
    assert keys == {"benchmark": ("toy",), "table": ["landscape"]}
    made = LANDSCAPES.make(study, store, {"benchmark": "toy", "table": "landscape"})
    assert made.values["spread"] > 0.05
    with pytest.raises(StudyError, match="does not use benchmark 'wine'"):
        LANDSCAPES.make(study, store, {"benchmark": "wine", "table": "landscape"})
