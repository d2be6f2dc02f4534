"""What each test costs: measured in every run, kept in `costs.json`. Tests are ordered by it.

`costs.json` has CPU and wall-clock seconds, fixtures included, of tests that cost much when they
were last measured (``make test-durations``), and the mean CPU seconds of each file's others.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("costs.json")
DEAR_CPU_S = 0.25
"""Cheaper tests have no entry of their own. About a tenth of those of no family cost more."""
LONG_S = 2.0
"""Longer ones have a special place in the order."""
_PACKAGE = "contextcliff_dagster_tests/"


def name_of(node_id: str) -> str:
    """The test's id below the package of the tests, as in `costs.json` and `tiers.toml`."""
    return node_id.removeprefix(_PACKAGE)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and wall-clock seconds of a test."""

    cpu_s: float
    wall_s: float


@cache
def _known() -> dict[str, list[float]]:
    known: dict[str, list[float]] = json.loads(FILE.read_text("utf-8"))
    return known


def cost_of(node_id: str) -> Cost:
    """The test's cost, or where it was cheap or was not measured yet that of its file's others."""
    name = name_of(node_id)
    known = _known().get(name) or _known().get(name.partition("::")[0]) or [0.0, 0.0]
    return Cost(*known)


class Meter:
    """Each test's cost as attributes of the report of its teardown, `cpu_s` and `wall_s`."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._before = _cpu_s()
        self._wall_s = 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._wall_s += call.duration
        if call.when == "teardown":
            # Attributes travel to the process that started the workers; no other place does.
            vars(report).update(cpu_s=_cpu_s() - self._before, wall_s=self._wall_s)
        return report


def _cpu_s() -> float:
    """CPU seconds of this process and of all that it has waited for, by the fork server, too."""
    return sum(os.times()[:4]) + _cpu_s_of(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]


def _cpu_s_of(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Record:
    """The costs of the tests that ran, written to `costs.json` at the end."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = {}
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._skipped.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self._skipped:
            measured: Any = report
            self._costs[report.nodeid] = Cost(measured.cpu_s, measured.wall_s)

    def pytest_sessionfinish(self) -> None:
        existing = {name: cost for name, cost in _known().items() if exists(name)}
        costs = kept(self._costs, existing)
        lines = (f"{json.dumps(name)}: {json.dumps(s)}" for name, s in costs.items())
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def kept(
    costs: Mapping[str, Cost], before: Mapping[str, Sequence[float]]
) -> dict[str, Sequence[float]]:
    """Return what is kept: the ``costs`` of dear tests, and for each file a mean of its others.

    ``before`` is what was kept earlier: what has not run this time stays.
    """
    ran = {name_of(node_id) for node_id in costs}
    found = {name: cost for name, cost in before.items() if name not in ran}
    others: defaultdict[str, list[float]] = defaultdict(list)
    for node_id, cost in costs.items():
        name = name_of(node_id)
        if cost.cpu_s >= DEAR_CPU_S or cost.wall_s >= LONG_S:
            found[name] = [round(cost.cpu_s, 2), round(cost.wall_s, 1)]
        else:
            others[name.partition("::")[0]].append(cost.cpu_s)
    found |= {file: [round(sum(cpu) / len(cpu), 4), 0.0] for file, cpu in others.items()}
    return dict(sorted(found.items()))


def exists(name: str) -> bool:
    """Whether the file of `costs.json` or the function of the test is still there."""
    file, *functions = name.partition("[")[0].split("::")
    path = Path(__file__).parents[1] / file
    return path.is_file() and all(function in path.read_text("utf-8") for function in functions)


def ordered(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return ``items`` so that no worker is left with a long one at the end.

    Long tests first, each worker with its share of them; the others in the order of their files.
    Tests that share a fixture of their module stay together. xdist gives each worker an equal piece
    of the whole, and moves tests from the end of one piece to whoever is done: every piece begins
    with long tests, the longest first.
    """
    units: defaultdict[object, list[pytest.Item]] = defaultdict(list)
    for item in items:
        units[_shared(item) or item.nodeid].append(item)
    seconds = {
        name: sum(cost_of(item.nodeid).wall_s for item in unit) for name, unit in units.items()
    }
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


def _shared(item: pytest.Item) -> tuple[str, ...] | None:
    """The module and those of its fixtures that are made once for several tests, if any."""
    # No public name leads to the fixtures of a test.
    fixtures: dict[str, Sequence[pytest.FixtureDef[object]]]
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    once = ("module", "class")
    names = sorted(name for name, made in fixtures.items() if made and made[-1].scope in once)
    return (item.nodeid.partition("::")[0], *names) if names else None
