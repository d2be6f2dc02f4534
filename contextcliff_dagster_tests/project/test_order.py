"""Long tests begin first, on every worker, and none is lost."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contextcliff_dagster_tests.support import order


def item(name: str, fixtures: dict[str, str] | None = None, *, slow: bool = False) -> Any:
    """A test as pytest has collected it; ``fixtures``: name -> scope."""
    made = {name: [SimpleNamespace(scope=scope)] for name, scope in (fixtures or {}).items()}
    return SimpleNamespace(
        nodeid=name,
        _fixtureinfo=SimpleNamespace(name2fixturedefs=made),
        get_closest_marker=lambda marker: slow or None,
    )


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "DURATIONS", tmp_path / "durations.json")
    seconds = {"a.py::eight": 8.0, "a.py::six": 6.0, "b.py::five": 5.0, "c.py::gone": 9.0}
    seconds |= {"t.py::rows": 0.0, "t.py::rows[long]": 7.0}
    (tmp_path / "durations.json").write_text(json.dumps(seconds))


def names(items: list[Any], workers: int) -> list[str]:
    return [test.nodeid for test in order.ordered(items, workers)]


def test_each_worker_begins_with_its_share_of_the_long_ones() -> None:
    quick = [item(f"z.py::{number}") for number in range(6)]
    long = [item(name) for name in ("a.py::six", "b.py::five", "a.py::eight")]
    ordered = names([*quick[:3], *long, *quick[3:], item("s.py::new", slow=True)], 2)
    assert ordered == [
        *("s.py::new", "a.py::six", "z.py::0", "z.py::1", "z.py::2"),
        *("a.py::eight", "b.py::five", "z.py::3", "z.py::4", "z.py::5"),
    ]


def test_a_new_case_of_short_ones_is_short_and_one_that_is_long_is_not() -> None:
    cases = [item(f"t.py::rows[{name}]", slow=True) for name in ("1", "2", "new", "long")]
    assert names([item("z.py::1"), *cases, item("a.py::six")], 1) == [
        *("t.py::rows[long]", "a.py::six", "z.py::1"),
        *("t.py::rows[1]", "t.py::rows[2]", "t.py::rows[new]"),
    ]


def test_what_is_kept_of_a_run_orders_the_next() -> None:
    seconds = {"t.py::rows[1]": 0.1, "t.py::rows[2]": 3.04, "s.py::slow": 0.2, "q.py::quick": 0.3}
    kept = order.kept(seconds, {"t.py::rows[1]", "t.py::rows[2]", "s.py::slow"})
    assert kept == {"s.py::slow": 0.0, "t.py::rows": 0.0, "t.py::rows[2]": 3.0}


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
    tests = [
        item(f"{'abc'[number % 3]}.py::{number}", slow=number % 5 == 0) for number in range(count)
    ]
    assert sorted(names(tests, workers)) == sorted(test.nodeid for test in tests)


def test_the_committed_seconds_are_of_long_tests() -> None:
    kept = Path(order.__file__).with_name("durations.json")
    assert all(
        seconds >= order.LONG_S or (seconds == 0 and "[" not in name)
        for name, seconds in json.loads(kept.read_text()).items()
    )
