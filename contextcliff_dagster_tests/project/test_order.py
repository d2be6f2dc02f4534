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
    assert all(seconds >= order.LONG_S for seconds in json.loads(kept.read_text()).values())
