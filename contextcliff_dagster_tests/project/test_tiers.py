"""Tiers and order: who runs when, what is kept of costs, and that no test is lost."""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contextcliff_dagster_tests.support import costs, tiers
from contextcliff_dagster_tests.support.costs import Cost
from tools import plant_faults

PACKAGE = "contextcliff_dagster_tests/"
KNOWN = {
    "a.py::eight": [3.0, 8.0],
    "a.py::six": [3.0, 6.0],
    "b.py::five": [3.0, 5.0],
    "c.py::gone": [3.0, 9.0],
    "t.py": [0.1, 0.0],
}
TABLE = """
[limits]
test = 1
commit = 6
[family.ui]
tests = ["ui", "k.py::walk"]
commit = ["ui/b.py::one"]
[family.kills]
marks = ["kill"]
tests = ["k.py"]
commit = ["k.py::first"]
[family.table]
tests = ["t.py"]
sample = 3
"""


def item(name: str, fixtures: dict[str, str] | None = None, marks: Set[str] = frozenset()) -> Any:
    """A test as pytest has collected it; ``fixtures``: name -> scope."""
    made = {name: [SimpleNamespace(scope=scope)] for name, scope in (fixtures or {}).items()}
    return SimpleNamespace(
        nodeid=PACKAGE + name,
        _fixtureinfo=SimpleNamespace(name2fixturedefs=made),
        get_closest_marker=lambda mark: mark in marks or None,
    )


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "costs.json").write_text(json.dumps(KNOWN))
    (tmp_path / "tiers.toml").write_text(TABLE)
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
    monkeypatch.setattr(tiers, "TABLE", tmp_path / "tiers.toml")
    (tmp_path / "price.patch").write_text(f"Caught by: {PACKAGE}z.py::new\n")
    monkeypatch.setattr(plant_faults, "FAULTS", tmp_path)
    monkeypatch.setenv(tiers.SEED_VARIABLE, "4f2a")
    for function in (costs._known, tiers.families):
        monkeypatch.setattr(function.__module__ + "." + function.__name__, function.__wrapped__)


def names(items: list[Any], workers: int) -> list[str]:
    return [costs.name_of(test.nodeid) for test in costs.ordered(items, workers)]


def in_tier(items: list[Any], tier: tiers.Tier) -> set[str]:
    return {costs.name_of(test.nodeid) for test in tiers.chosen(items, tier)}


QUICK = [item("z.py::new"), item("z.py::new[case]")]
SLOW = [
    item("ui/b.py::one[a]"), item("ui/b.py::one_more"), item("k.py::first"), item("k.py::walk"),
    item("x.py::marked", marks={"kill"}), item("a.py::six"),
]  # fmt: skip
ROWS = [item(f"t.py::rows[{number}]") for number in range(40)]


def test_each_tier_has_the_tests_of_the_one_before_and_the_last_has_all() -> None:
    items = [*SLOW, *QUICK, *ROWS]
    quick, commit, nightly = (in_tier(items, tier) for tier in ("quick", "commit", "nightly"))
    assert quick == {"z.py::new", "z.py::new[case]"}
    assert {name for name in commit - quick if "rows" not in name} == {
        "ui/b.py::one[a]",
        "k.py::first",
    }
    assert len([name for name in commit if "rows" in name]) == 3
    assert nightly == {costs.name_of(test.nodeid) for test in items}


def test_a_sample_is_the_same_for_a_commit_and_another_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = in_tier(ROWS, "commit")
    assert drawn == in_tier(ROWS[::-1], "commit")
    others = set()
    for seed in ("4f2b", "4f2c", "4f2d"):
        monkeypatch.setenv(tiers.SEED_VARIABLE, seed)
        others |= in_tier(ROWS, "commit")
    assert others - drawn


def test_a_test_is_of_the_first_family_that_has_it() -> None:
    families = {costs.name_of(test.nodeid): tiers.family_of(test) for test in [*SLOW, *QUICK]}
    assert families == {
        "ui/b.py::one[a]": "ui", "ui/b.py::one_more": "ui", "k.py::walk": "ui",
        "k.py::first": "kills", "x.py::marked": "kills",
        "a.py::six": tiers.DEAR, "z.py::new": tiers.QUICK, "z.py::new[case]": tiers.QUICK,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("ui", {"quick"}), ("ui/b.py", {"quick"}), ("ui/c.py", {"quick", "commit"}),
        ("k.py", {"quick"}), ("t.py", {"quick"}), ("z.py", set()),
    ],
)  # fmt: skip
def test_a_file_without_a_test_of_the_tier_is_not_even_collected(
    path: str, left_out: set[str], tmp_path: Path
) -> None:
    found = {
        tier
        for tier in ("quick", "commit", "nightly")
        if tiers.can_skip_collecting(tmp_path / path, tier)
    }
    assert found == left_out


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        ("", "", []),
        ('"k.py::walk"', '"k.py::gone"', ["family 'ui' names k.py::gone, which is no test"]),
        ('"k.py::first"', '"k.py::walk"', ["k.py::walk is of another family than 'kills'"]),
        ('marks = ["kill"]', 'marks = ["k"]', ["family 'kills' names k, a mark of no test"]),
        ("sample = 3", "", ["no test of family 'table' runs at a commit"]),
        ("commit = 6", "commit = 0.2", ["Tier commit takes 0 CPU s: at most 0.2 are allowed"]),
    ],
)
def test_what_is_wrong_in_the_table_is_named(before: str, after: str, sentences: list[str]) -> None:
    tiers.TABLE.write_text(TABLE.replace(before, after))
    found = [*tiers.mistakes([*SLOW, *QUICK, *ROWS])]
    assert [sentence.removeprefix("tiers.toml: ") for sentence in found] == [
        f"{sentence}." for sentence in sentences
    ]


def test_a_fault_that_no_test_of_a_commit_catches_is_named() -> None:
    for name, test in {"a": "k.py::walk", "b": ""}.items():
        (plant_faults.FAULTS / f"{name}.patch").write_text(f"Caught by: {test}\n")
    assert [*tiers.mistakes([*SLOW, *QUICK, *ROWS])] == [
        "a.patch: caught by k.py::walk, which does not run at each commit.",
        "b.patch: caught by no test, which does not run at each commit.",
    ]


def test_the_table_adds_up() -> None:
    lines = [line.split() for line in tiers.overview([*SLOW, *QUICK, *ROWS]).splitlines()]
    assert ["table", "40", "4", "3", "0"] in lines
    assert ["make", "nightly", "48", "7", "none"] in lines


def test_each_worker_begins_with_its_share_of_the_long_ones() -> None:
    quick = [item(f"z.py::{number}") for number in range(6)]
    long = [item(name) for name in ("a.py::six", "b.py::five", "a.py::eight")]
    assert names([*quick[:3], *long, *quick[3:]], 2) == [
        *("a.py::eight", "b.py::five", "z.py::0", "z.py::1"),
        *("a.py::six", "z.py::2", "z.py::3", "z.py::4"),
        "z.py::5",
    ]


def test_what_is_kept_of_a_run_is_what_is_dear_or_long_and_a_mean_for_the_others() -> None:
    before = {"t.py::rows[3]": [9.0, 9.0], "old.py::stays": [9.0, 9.0]}
    measured = {
        "t.py::rows[1]": Cost(0.1, 0.1), "t.py::rows[2]": Cost(0.2, 0.3),
        "t.py::rows[3]": Cost(3.041, 3.04), "s.py::waits": Cost(0.01, 9.0),
    }  # fmt: skip
    assert costs.kept({PACKAGE + name: cost for name, cost in measured.items()}, before) == {
        "old.py::stays": [9.0, 9.0],
        "s.py::waits": [0.01, 9.0],
        "t.py": [0.15, 0.0],
        "t.py::rows[3]": [3.04, 3.0],
    }


def test_costs_of_a_test_that_is_gone_are_not_kept() -> None:
    here = "project/test_tiers.py"
    for name in (here, f"{here}::test_costs_of_a_test_that_is_gone_are_not_kept[a::b]"):
        assert costs.exists(name)
    for name in ("project/gone.py", f"{here}::test_" + "gone", f"{here}::Test" + "Gone::test_it"):
        assert not costs.exists(name)


def test_tests_that_share_a_fixture_of_their_module_stay_together() -> None:
    shared = {"store": "module", "tmp_path": "function", "server": "session"}
    tests = [
        item("q.py::quick"),
        item("a.py::first", shared),
        item("z.py::alone", {"server": "session"}),
        item("a.py::eight", shared),
    ]
    assert names(tests, 2)[:2] == ["a.py::first", "a.py::eight"]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_none_is_lost_and_none_is_run_twice(workers: int, count: int) -> None:
    tests = [item(f"{'abc'[number % 3]}.py::{number}") for number in range(count)]
    assert sorted(names(tests, workers)) == sorted(costs.name_of(test.nodeid) for test in tests)


def test_a_run_that_was_cut_short_goes_on_after_what_passed(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "passed"
    assert tiers.Resumed(file).before == {}
    resumed = tiers.Resumed(file)
    for name, outcomes in {"a b[c d]": "ppp", "broken": "pfp", "left": "sp"}.items():
        for when, outcome in zip(
            ("setup", "call", "teardown")[-len(outcomes) :], outcomes, strict=True
        ):
            resumed.pytest_runtest_logreport(report(name, when, outcome))
    assert tiers.Resumed(file).before == {"a b[c d]": ("kills", 1.5)}


def test_the_summary_counts_what_passed_before_and_a_test_whose_worker_crashed() -> None:
    summary = tiers.Summary([("kills", 2.0)])
    for name, when, outcome in (("ok", "call", "p"), ("ok", "teardown", "p"), ("gone", "???", "f")):
        summary.pytest_runtest_logreport(report(name, when, outcome))
    lines: list[str] = []
    reporter = SimpleNamespace(section=lines.append, write_line=lines.append)
    summary.pytest_terminal_summary(reporter)  # type: ignore[arg-type]
    assert [line.split() for line in "\n".join(lines[1:]).splitlines()[1:]] == [
        ["(crashed)", "0", "1", "0", "0"],
        ["kills", "2", "0", "0", "4"],
    ]


def report(node_id: str, when: str, outcome: str) -> Any:
    """A report of pytest's, of a test of the family of kills."""
    named = {"p": "passed", "f": "failed", "s": "skipped"}[outcome]
    return SimpleNamespace(
        nodeid=node_id, when=when, outcome=named, passed=outcome == "p", family="kills", cpu_s=1.5
    )
