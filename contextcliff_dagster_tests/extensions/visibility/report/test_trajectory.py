"""A run told step by step: every step once, nothing that the records do not have."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.visibility.behaviour import behaviour_of
from contextcliff_dagster.extensions.visibility.report.names import change_words, value_words
from contextcliff_dagster.extensions.visibility.report.single_runs import (
    recorded_run,
    trajectories_of,
    trajectory_of,
)
from contextcliff_dagster.extensions.visibility.section import Axes, PlannedRun, VisibilitySection
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster_tests.extensions.visibility.made_records import (
    records_of_runs,
    rows_of_run,
)

TOY = PlannedRun("toy", 3, Axes(bounds="shown", history=5))
numbers = st.floats(allow_nan=False) | st.integers(-(10**6), 10**12)
values = numbers | st.none() | st.booleans() | st.text(max_size=60) | st.just(float("nan"))
few = st.fixed_dictionaries({"C": st.sampled_from([1, 2.0, 1e9])})
"""Few enough that runs stay and go back."""
proposals = (
    few
    | st.none()
    | values
    | st.dictionaries(st.sampled_from(["C", "max_iter", "depth", "</script>"]), values, max_size=3)
)


def read_aloud(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    told = trajectory_of("", recorded_run(rows), "")
    return [*told.steps, *told.summary]


def rows_of(replies: Sequence[object], run: PlannedRun = TOY) -> list[dict[str, Any]]:
    return list(rows_of_run(run, len(replies), lambda _, number, __: replies[number - 1]))


def test_a_run_in_words() -> None:
    told = read_aloud(
        rows_of(
            [
                {"C": 1},
                {"C": 500, "max_iter": 500.4},
                None,
                {"C": 1, "max_iter": 300},
                {"C": 1, "depth": 3},
                {"max_iter": "many"},
            ]
        )
    )
    assert told[0] == (
        "Start: C 0.717, max_iter 300; validation accuracy 0.800 (higher is better)."
    )
    assert told[1] == "Step 1: raised C from 0.717 to 1; validation 0.820, the best so far."
    assert told[2].startswith(
        "Step 2: asked for C 500 (got its upper bound, 100); raised max_iter from 300 to 500; "
        "max_iter 500.4 was rounded; validation 0."
    )
    assert told[3].startswith("Step 3: the reply could not be read, so the configuration stayed; ")
    assert told[4].startswith("Step 4: went back to the configuration of step 1; ")
    assert told[5].startswith(
        'Step 5: stayed with the same configuration and "depth" is not a parameter of the task; '
    )
    assert '"many" for max_iter is not a number' in told[6]
    assert told[7].startswith("Its moves were of medium size: 2 of 5 steps of the model are new")
    assert "1 step of 6 set nothing." in told[7]
    assert re.fullmatch(
        r"It would report accuracy 0\.\d+ on the test rows: regret 0\.\d+, from 0\.\d+ at the "
        r"start\.",
        told[8],
    )


@given(st.lists(proposals, min_size=1, max_size=8))
def test_every_step_is_told_once_as_the_measures_count_it(replies: list[object]) -> None:
    rows = rows_of(replies)
    told = read_aloud(rows)
    steps = told[1:-2]
    assert [line.partition(":")[0] for line in steps] == [
        f"Step {number + 1}" for number in range(len(replies))
    ]
    run = recorded_run(rows)
    found = behaviour_of(task_named("toy").space, [one.step for one in run.steps])
    own = [line for line, row in zip(steps, rows, strict=True) if row["chosen_by"] == "model"]
    stayed = sum("stayed with the same configuration" in line for line in own)
    returned = sum("went back to" in line for line in own)
    assert stayed == round((found.stagnation or 0) * found.model_steps)
    assert returned == round((found.oscillation or 0) * found.model_steps)
    for line, row in zip(steps, rows, strict=True):
        if row["chosen_by"] != "model":
            assert "so the configuration stayed" in line
            assert not re.search("raised|lowered|went back|asked for", line)
    for first, second in re.findall(r"from (\S+) to (\S+?)[,;]? ", " ".join(steps)):
        assert first != second
    if not found.model_steps:
        assert told[-2] == "No reply set a parameter, so nothing was searched."


@given(st.lists(proposals, min_size=1, max_size=8))
def test_the_best_so_far_is_the_best_so_far(replies: list[object]) -> None:
    rows = rows_of(replies)
    best, improved = rows[0]["start_validation"], []
    for row in rows:
        improved.append(row["validation"] > best)
        best = max(best, row["validation"])
    told = read_aloud(rows)[1:-2]
    assert [line.endswith(", the best so far.") for line in told] == improved


def test_the_order_of_the_rows_changes_nothing() -> None:
    rows = rows_of([{"C": 10.0**k} for k in range(-3, 4)])
    mixed = rows.copy()
    random.Random(0).shuffle(mixed)
    assert read_aloud(mixed) == read_aloud(rows)


def test_parameters_that_move_alike_are_told_together() -> None:
    run = PlannedRun("friedman", 0, Axes())
    (_, told, *_) = read_aloud(rows_of([{"C": 10, "gamma": 0.03, "epsilon": 0.05}], run))
    assert told.startswith(
        "Step 1: raised C from 1 to 10, gamma from 0.01 to 0.03; lowered epsilon from 0.1 to 0.05; "
    )


def test_lower_is_better_where_it_is() -> None:
    run = PlannedRun("friedman", 0, Axes())
    told = read_aloud(rows_of([{"C": 10, "gamma": 0.03}], run))
    assert "(lower is better)" in told[0]
    assert told[1].endswith("the best so far.")


def test_steps_from_the_best_configuration_name_it() -> None:
    rows = rows_of([{"C": 1}, {"C": 99}, {"max_iter": 400}])
    rows[2] |= {"base_config": rows[0]["config"], "config": '{"C": 1.0, "max_iter": 400}'}
    told = read_aloud(rows)
    assert told[3].startswith(
        "Step 3: went on from the configuration of step 1 and raised max_iter from 300 to 400; "
    )


def test_a_run_that_broke_off_or_could_not_be_trained() -> None:
    rows = rows_of([{"C": 1}, {"C": 2}, {"C": 3}])[:2]
    rows[1] |= {"validation": None, "test": float("nan")}
    told = read_aloud(rows)
    assert told[2] == "Step 2: raised C from 1 to 2; it could not be trained."
    assert told[-1].endswith("1 step of the run has no answer.")


def test_which_runs_are_told() -> None:
    section = VisibilitySection(benchmarks=["toy", "wine"], seeds=3, steps=4)
    records = records_of_runs(section)
    told = trajectories_of(records)
    shown = records[records["run"].str.contains("-h5-t1m1r0b1d1-")]
    last = shown[shown["step"] == 4].sort_values(["regret", "run"])
    assert [one.run.key for one in told] == [last["run"].iloc[2], last["run"].iloc[-1]]
    assert told[0].why == "Median regret of 6 runs that show most"
    assert [*told[0].steps, *told[0].summary] == read_aloud(
        records[records["run"] == told[0].run.key].to_dict("records")  # type: ignore[arg-type]
    )
    mixed = trajectories_of(records.sample(frac=1, random_state=1))
    assert mixed == told


def test_runs_that_are_not_whole_are_not_told() -> None:
    section = VisibilitySection(
        benchmarks=["toy"], task=["shown"], metric=["shown"], bounds=["shown"], history=[5],
        seeds=2, steps=3,
    )  # fmt: skip
    records = records_of_runs(section)
    first, second = records["run"].unique()
    some = records[(records["run"] != second) | (records["step"] < 3)]
    assert [(one.run.key, one.why) for one in trajectories_of(some)] == [(first, "The run")]
    assert trajectories_of(some[some["step"] < 3]) == []
    two = pd.concat([some, some.assign(model="other")])
    assert [one.model for one in trajectories_of(two)] == ["tuner", "other"]


@given(numbers.filter(lambda value: abs(value) < 1e308))
def test_a_value_is_written_as_what_it_is(value: float) -> None:
    written = value_words(value).replace(",", "")
    assert float(written) == pytest.approx(value, rel=6e-3)


@given(*[st.floats(1e-12, 1e12)] * 2)
def test_two_values_are_told_apart(a: float, b: float) -> None:
    first, second = change_words(a, b)
    assert (first == second) == (a == b)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.1, "0.1"), (1000, "1,000"), (1234.5, "1,234"), (1e-5, "1e-05"), (True, "true"),
     ("uniform", '"uniform"'), (0.7168, "0.717"), (2.0, "2"), (300, "300"), (None, "null")],
)  # fmt: skip
def test_values(value: object, written: str) -> None:
    assert value_words(value) == written
