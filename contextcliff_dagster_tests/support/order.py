"""In which order the tests run, so that no worker is left with a long one at the end.

Long tests first, each worker with its share of them; the others in the order of their files. Tests
that share a fixture of their module stay together. `durations.json` has the seconds of the last
run that was asked for them (``make test-durations``), of tests that are marked slow and took less
than `LONG_S` under the name of their function: hundreds of its cases go with the others.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
LONG_S = 2.0
"""Shorter tests are in no file and in no special place."""
_SLOW_S = 20.0
"""Of a test that is marked slow and was not timed yet, in no case of its."""


class Timing:
    """Adds up the seconds of each test, setup and teardown included, and writes the long ones."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._slow: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if "slow" in report.keywords:
            self._slow.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        long = kept(self._seconds, self._slow)
        DURATIONS.write_text(json.dumps(long, indent=0) + "\n", encoding="utf-8")


def kept(seconds: Mapping[str, float], slow: Set[str]) -> dict[str, float]:
    """Return what of the tests' ``seconds`` orders them; ``slow``: names of those so marked."""
    long = {name: round(s, 1) for name, s in seconds.items() if s >= LONG_S}
    short = (name for name in slow if seconds[name] < LONG_S)
    return dict(sorted({**{_function(name): 0.0 for name in short}, **long}.items()))


def ordered(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return ``items`` in the order of the module's docstring, for so many workers.

    xdist gives each worker an equal piece of the whole, and moves tests from the end of one piece
    to whoever is done: every piece begins with long tests, the longest first.
    """
    known: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    units: defaultdict[object, list[pytest.Item]] = defaultdict(list)
    for item in items:
        units[_shared(item) or item.nodeid].append(item)
    seconds = {name: sum(_seconds(item, known) for item in unit) for name, unit in units.items()}
    by_length = sorted(seconds, key=lambda name: -seconds[name])
    long = [name for name in by_length if seconds[name] >= LONG_S]
    rest = [item for name in units if seconds[name] < LONG_S for item in units[name]]
    pieces: list[list[pytest.Item]] = []
    for worker in range(workers):
        piece = [item for name in long[worker::workers] for item in units[name]]
        room = max(0, len(items) * (worker + 1) // workers - sum(map(len, pieces)) - len(piece))
        pieces.append(piece + rest[:room])
        del rest[:room]
    return [item for piece in pieces for item in piece] + rest


def _seconds(item: pytest.Item, known: dict[str, float]) -> float:
    unknown = _SLOW_S if item.get_closest_marker("slow") else 0.0
    return known.get(item.nodeid, known.get(_function(item.nodeid), unknown))


def _function(name: str) -> str:
    """The test's name without its parameters."""
    return name.partition("[")[0]


def _shared(item: pytest.Item) -> tuple[str, ...] | None:
    """The module and those of its fixtures that are made once for several tests, if any."""
    # No public name leads to the fixtures of a test.
    fixtures: dict[str, Sequence[pytest.FixtureDef[object]]]
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    once = ("module", "class")
    names = sorted(name for name, made in fixtures.items() if made and made[-1].scope in once)
    return (item.nodeid.partition("::")[0], *names) if names else None
