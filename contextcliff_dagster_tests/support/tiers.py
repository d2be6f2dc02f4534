"""Tests in tiers: `tiers.toml` says what runs when; ``make tiers`` prints it with what it costs.

Samples are drawn by the commit's hash: others for each commit, the same for whoever runs it again.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from contextcliff_dagster_tests.support.costs import DEAR_CPU_S, cost_of, name_of
from contextcliff_dagster_tests.support.paths import CHECKOUT
from tools import plant_faults

Tier = Literal["quick", "commit", "nightly"]
TABLE = CHECKOUT / "contextcliff_dagster_tests" / "tiers.toml"
QUICK, DEAR = "quick", "dear"
SEED_VARIABLE = "CONTEXTCLIFF_TESTS_SEED"
_CRASHED = "(crashed)"  # its worker died: no report names the family


@dataclass(frozen=True, slots=True)
class Family:
    """A family of slow tests; see `tiers.toml`."""

    name: str
    marks: Sequence[str] = ()
    tests: Sequence[str] = ()
    commit: Sequence[str] = ()
    sample: int = 0

    def has(self, item: pytest.Item) -> bool:
        """Whether the test is of this family, if it is of no earlier one."""
        return any(map(item.get_closest_marker, self.marks)) or _named(item.nodeid, self.tests)


@cache
def families() -> tuple[Family, ...]:
    """The families, in the order in which they take their tests."""
    table = tomllib.loads(TABLE.read_text("utf-8"))["family"]
    return tuple(Family(name, **entry) for name, entry in table.items())


def _named(node_id: str, names: Iterable[str]) -> str | None:
    """Which of ``names`` is the test's, its function's, its file's or that of a folder above."""
    test = name_of(node_id)
    return next(
        (n for n in names if test == n or test.startswith((f"{n}/", f"{n}:", f"{n}["))), None
    )


def family_of(item: pytest.Item) -> str:
    """The name of the test's family, `QUICK` or `DEAR`."""
    for family in families():
        if family.has(item):
            return family.name
    return DEAR if cost_of(item.nodeid).cpu_s >= DEAR_CPU_S else QUICK


def chosen(items: Sequence[pytest.Item], tier: Tier) -> list[pytest.Item]:
    """Return those of ``items`` that the tier runs."""
    if tier == "nightly":
        return [*items]
    members: dict[str, list[pytest.Item]] = {}
    for item in items:
        members.setdefault(family_of(item), []).append(item)
    taken = {item.nodeid for item in members.get(QUICK, [])}
    for family in families() if tier == "commit" else ():
        of_it = members.get(family.name, [])
        always = [item.nodeid for item in of_it if _named(item.nodeid, family.commit)]
        others = sorted({item.nodeid for item in of_it} - {*always})
        drawn = random.Random(seed()).sample(others, min(family.sample, len(others)))
        taken.update(always, drawn)
    return [item for item in items if item.nodeid in taken]


def can_skip_collecting(path: Path, tier: Tier) -> bool:
    """Whether no test at or below this path is in the tier."""
    if tier == "nightly" or not path.is_relative_to(TABLE.parent):
        return False
    node_id = path.relative_to(TABLE.parent).as_posix()
    family = next((f for f in families() if _named(node_id, f.tests)), None)
    if family is None:
        return False
    at_a_commit = [name for each in families() for name in each.commit]
    return tier == "quick" or not (
        family.sample
        or any(name.startswith(node_id) or _named(node_id, [name]) for name in at_a_commit)
    )


def seed() -> str:
    """What a run draws its samples by: the commit's hash, or what `SEED_VARIABLE` says."""
    if SEED_VARIABLE not in os.environ:
        done = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True
        )
        # Workers inherit it: a commit that is made meanwhile would give each another sample.
        os.environ[SEED_VARIABLE] = done.stdout.strip() or "none"
    return os.environ[SEED_VARIABLE]


class Resumed:
    """Tests that passed, kept in a file: a run that was cut short goes on after them."""

    def __init__(self, file: Path | None) -> None:
        self.before: dict[str, tuple[str, float]] = {}
        """Family and CPU seconds of each test that passed in earlier runs, by its id."""
        self._file = file
        self._not_passed: set[str] = set()
        if file and file.exists():
            for line in file.read_text("utf-8").splitlines():
                family, cpu_s, node_id = line.split(" ", 2)
                self.before[node_id] = family, float(cpu_s)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._not_passed.add(report.nodeid)
        elif self._file and report.when == "teardown" and report.nodeid not in self._not_passed:
            measured: Any = report
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(f"{measured.family} {measured.cpu_s:.2f} {report.nodeid}\n")


class Summary:
    """A line for each family at the end of a run: how its tests ended, and their CPU seconds."""

    def __init__(self, before: Iterable[tuple[str, float]]) -> None:
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        self._ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._worst: dict[str, str] = {}
        for family, cpu_s in before:
            self._add(family, "passed", cpu_s)

    def _add(self, family: str, ended: str, cpu_s: float) -> None:
        self._ended[family][ended] += 1
        self._cpu_s[family] += cpu_s

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            worst = {report.outcome, self._worst.get(report.nodeid, "")}
            self._worst[report.nodeid] = "failed" if "failed" in worst else "skipped"
        if report.when == "teardown":
            measured: Any = report
            ended = self._worst.pop(report.nodeid, "passed")
            self._add(measured.family, ended, measured.cpu_s)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for ended in self._worst.values():
            self._add(_CRASHED, ended, 0.0)
        columns = ("passed", "failed", "skipped")
        rows = [
            (name, *(f"{ended[column]:,}" for column in columns), f"{self._cpu_s[name]:,.0f}")
            for name, ended in sorted(self._ended.items())
        ]
        if rows:
            terminalreporter.section("families")
            terminalreporter.write_line(_aligned([("family", *columns, "CPU s"), *rows]))


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows as lines: the first column from the left, the others from the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if n else cell.ljust(width) for n, (cell, width) in enumerate(cells)
        )
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    )
    return "\n".join(lines)


class _Collected:
    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def overview(items: Sequence[pytest.Item]) -> str:
    """The tests of each family and tier, and the CPU seconds that they took when last measured."""
    by_family: dict[str, list[pytest.Item]] = {QUICK: []}
    for item in items:
        by_family.setdefault(family_of(item), []).append(item)
    rows = [("family", "tests", "CPU s", "each commit", "CPU s")]
    for name, members in by_family.items():
        rows.append((name, *_sums(members), *_sums(chosen(members, "commit"))))
    tiers = [("tier", "tests", "CPU s", "", "limit")]
    for tier, title, limit in zip(
        get_args(Tier), ("make test", ".ci/run", "make nightly"), (*_limits(), None), strict=True
    ):
        tiers.append((title, *_sums(chosen(items, tier)), "", f"{limit:,}" if limit else "none"))
    return _aligned([*rows, ("",) * 5, *tiers])


def _sums(items: Sequence[pytest.Item]) -> tuple[str, str]:
    return f"{len(items):,}", f"{_cpu_s(items):,.0f}"


def _cpu_s(items: Iterable[pytest.Item]) -> float:
    return sum(cost_of(item.nodeid).cpu_s for item in items)


def _limits() -> tuple[int, int]:
    limits = tomllib.loads(TABLE.read_text("utf-8"))["limits"]
    return limits["test"], limits["commit"]


def mistakes(items: Sequence[pytest.Item]) -> Iterator[str]:
    """A sentence for each name in `tiers.toml` that is wrong, and each limit that is exceeded."""
    for family in families():
        for mark in family.marks:
            if not any(item.get_closest_marker(mark) for item in items):
                yield f"tiers.toml: family {family.name!r} names {mark}, a mark of no test."
        for name in (*family.tests, *family.commit):
            if not any(_named(item.nodeid, [name]) for item in items):
                yield f"tiers.toml: family {family.name!r} names {name}, which is no test."
        of_it = [item for item in items if family_of(item) == family.name]
        # What is dear today may be cheap where it is measured next, and so runs anyway.
        run_anyway = [item for item in items if family_of(item) == QUICK]
        for name in family.commit:
            if not any(_named(item.nodeid, [name]) for item in (*of_it, *run_anyway)):
                yield f"tiers.toml: {name} is of another family than {family.name!r}."
        if of_it and not (family.commit or family.sample):
            yield f"tiers.toml: no test of family {family.name!r} runs at a commit."
    for tier, limit in zip(get_args(Tier), _limits(), strict=False):
        if (cpu_s := _cpu_s(chosen(items, tier))) > limit:
            yield f"Tier {tier} takes {cpu_s:,.0f} CPU s: at most {limit:,} are allowed."
    at_a_commit = [item.nodeid for item in chosen(items, "commit")]
    for fault in sorted(plant_faults.FAULTS.glob("*.patch")):
        test = plant_faults.caught_by(fault)
        if not any(_named(node_id, [name_of(test)]) for node_id in at_a_commit):
            yield f"{fault.name}: caught by {test or 'no test'}, which does not run at each commit."


def main() -> int:
    """Print the overview; exit code 1 where `tiers.toml` is wrong."""
    collected, said = _Collected(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-qq", str(TABLE.parent)], plugins=[collected])
    if code:
        print(said.getvalue(), file=sys.stderr)
        return int(code)
    print(overview(collected.items))
    print(f"\nCollecting all took {sum(os.times()[:2]):.0f} CPU s more; each worker does that.")
    print(f"The samples of this commit are drawn by {seed()}.")
    wrong = [*mistakes(collected.items)]
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
