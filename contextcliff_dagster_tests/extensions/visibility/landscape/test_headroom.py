"""Seeds on whose splits nothing can be gained are replaced, always by the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.extensions.visibility.analysis.model import headroom_notes
from contextcliff_dagster.extensions.visibility.kept_landscapes import ground_named
from contextcliff_dagster.extensions.visibility.landscape import has_headroom
from contextcliff_dagster.extensions.visibility.runs.tuning import (
    Bench,
    Benches,
    seeds_to_skip,
    without_headroom,
)
from contextcliff_dagster.extensions.visibility.section import VisibilitySection, runs_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Config, Evaluation
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.landscapes import landscape_of

TOY = task_named("toy")
START = dict(TOY.space.start)


@dataclass
class Planted:
    """Scores of a split: the start's, and one better configuration unless the split is flat."""

    flat: frozenset[int]
    asked: list[int] = field(default_factory=list)

    def evaluation(self, config: Config, split: int) -> Evaluation:
        self.asked.append(split)
        better = dict(config) != START and split not in self.flat
        return Evaluation(0.9, 0.9) if better else Evaluation(0.5, 0.5)


def section(**keys: Any) -> VisibilitySection:
    given = {"benchmarks": ["toy"], "start": ["default"], "seeds": 3, **keys}
    return VisibilitySection.model_validate(given)


def bench(flat: set[int]) -> Mapping[str, Bench]:
    """`toy` with a landscape of 20 splits and noise .01, ``flat`` ones no better than the start."""
    landscape = landscape_of(TOY.space, lambda at: 0.5, noise=0.01)
    for table in (landscape.validation, landscape.test):
        table += 0.4
        table[:, [k for k in flat if k < 20]] = 0.5
    # Splits from 100 on are in no table, and are trained.
    return {"toy": Bench(TOY, Planted(frozenset(flat)), landscape)}


@pytest.mark.parametrize("first", [0, 100], ids=["tabulated", "trained"])
def test_flat_seeds_are_replaced_by_the_next(first: int) -> None:
    flat = {first, first + 2, first + 3}
    skipped = seeds_to_skip(section(first_seed=first), bench(flat))
    # Seed 1 has headroom, 2 and 3 have none: 1, 4, 5 are left.
    assert skipped == tuple(sorted(flat))
    chosen = section(first_seed=first, skipped_seeds=skipped)
    assert chosen.seed_numbers == (first + 1, first + 4, first + 5)
    assert {run.seed for run in runs_of(chosen)} == {*chosen.seed_numbers}
    assert seeds_to_skip(section(first_seed=first), bench(flat)) == skipped, "the same again"


def test_one_start_with_headroom_is_enough_and_every_benchmark_needs_it() -> None:
    benches = bench({0})
    assert without_headroom(section(), benches) == [("toy", 0)]
    both = {**benches, "toy-flat": Bench(TOY, *_parts(bench({1})["toy"]))}
    assert without_headroom(section(benchmarks=["toy", "toy-flat"]), both) == [
        ("toy", 0),
        ("toy-flat", 1),
    ]
    assert seeds_to_skip(section(benchmarks=["toy", "toy-flat"]), both) == (0, 1)


def _parts(one: Bench) -> tuple[Any, Any]:
    return one.trainings, one.landscape


def test_a_benchmark_without_headroom_anywhere_keeps_its_seeds_and_says_so() -> None:
    everywhere = {*range(200)}
    assert seeds_to_skip(section(), bench(everywhere)) == ()
    without = without_headroom(section(), bench(everywhere))
    (note,) = headroom_notes(section(), without)
    assert note.startswith("Nothing could be gained on these splits: no configuration")


def test_notes_name_skipped_seeds_and_single_splits() -> None:
    skipped = section(skipped_seeds=[50, 51])
    first, second = headroom_notes(skipped, [("toy", 2)])
    assert first.startswith("Skipped seeds: 50, 51; nothing could be gained on their splits")
    assert second.startswith("Nothing could be gained on the splits of toy seed 2:")
    assert headroom_notes(section(), []) == []


def test_a_gain_within_noise_or_on_one_part_alone_is_none() -> None:
    landscape = landscape_of(TOY.space, lambda at: 0.5, noise=0.01)
    assert landscape.noise == pytest.approx(0.01, rel=0.1)
    landscape.validation[:, 0] = 0.9
    landscape.test[:, 0] = 0.505
    start = Evaluation(0.5, 0.5)
    assert not has_headroom(landscape, START, 0, lambda *_: start)
    landscape.test[7, 0] = 0.55
    assert has_headroom(landscape, START, 0, lambda *_: start)
    assert has_headroom(landscape, START, 1, lambda *_: Evaluation(np.nan, np.nan))


def test_lower_errors_are_gains() -> None:
    landscape = landscape_of(TOY.space, lambda at: 0.5, noise=0.01, higher_is_better=False)
    assert has_headroom(landscape, START, 0, lambda *_: Evaluation(0.9, 0.9))
    assert not has_headroom(landscape, START, 0, lambda *_: Evaluation(0.1, 0.1))


def test_an_untrained_seed_takes_one_training_where_there_is_headroom() -> None:
    benches = bench(set())
    planted = benches["toy"].trainings
    assert isinstance(planted, Planted)
    assert without_headroom(section(first_seed=100, seeds=1), benches) == []
    assert len(planted.asked) == 3, "the start twice, and the likeliest configuration"


def test_toy_has_no_headroom_on_seeds_50_to_52(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    asked = section(first_seed=50, landscape="coarse")
    benches = Benches(store, {"toy": ground_named("toy", store, asked)})
    assert {seed for _, seed in without_headroom(asked, benches)} == {50, 51, 52}
    skipped = seeds_to_skip(asked, benches)
    assert {50, 51, 52} <= {*skipped}
    chosen = asked.model_copy(update={"skipped_seeds": skipped})
    assert len(chosen.seed_numbers) == 3
    assert without_headroom(chosen, benches) == []
