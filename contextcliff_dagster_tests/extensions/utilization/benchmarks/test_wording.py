"""The words of questions say all that is asked, and nothing else."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from contextcliff_dagster.extensions.utilization.benchmarks.asking import PATTERNS, pattern_of
from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMS

SLOTS = {
    "sku": r"(?P<sku>SKU-\d{4,})",
    "ts": r"[^()]+ \(timestamp (?P<ts>\d+)\)",
    "at": r"[^()]+ \(timestamp (?P<at>\d+)\)",
    "hops": r"(?P<hops>\d+)",
    "attr": r"(?P<attr>[a-z]+)",
    "value": r"(?P<value>\w+)",
    "warehouse": r"Warehouse \d+ \((?P<warehouse>WH-\d{4,})\)",
    "entity": r"Entity \d+ \((?P<entity>E-\d{4,})\)",
    "from": r"Node \d+ \((?P<from>N-\d{4,})\)",
    "to": r"Node \d+ \((?P<to>N-\d{4,})\)",
}


def read(pattern: str, text: str) -> dict[str, str] | None:
    """The slots of a question by its pattern; those named again are the same."""
    seen: set[str] = set()

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return SLOTS[name]

    form = re.sub(r"\\\{(\w+)\\\}", slot, re.escape(pattern)).replace(
        "transfers\\?", "transfers?\\?"
    )
    found = re.fullmatch(form, text)
    return found.groupdict() if found else None


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_question_reads_back_by_its_pattern_alone(name: BenchmarkName) -> None:
    asked = set()
    for seed in range(60):
        data = generate(name, seed, parameters_for(name, 60), questions=6)
        for one in data.questions:
            found = {key: read(pattern, one.text) for key, pattern in PATTERNS.items()}
            assert [key for key, slots in found.items() if slots] == [pattern_of(one.about)]
            about = {key: str(value) for key, value in one.about.items() if value is not None}
            slots = found[pattern_of(one.about)]
            assert slots is not None
            action = {"action": about["action"]} if "action" in about else {}
            assert {"ask": about["ask"], **action, **slots} == about
            asked.add(pattern_of(one.about))
    assert {key.split()[0] for key in asked} >= {
        "warehouse": {"units", "stock", "transfers"},
        "constraints": {"value", "facts"},
        "network": {"initial_weight", "weight", "distance", "max_flow"},
    }[name]


@pytest.mark.parametrize("ts", [1704067200, 1704110400, 1709251199, 1727827201, 1735603322])
def test_times_are_those_of_the_calendar(ts: int) -> None:
    clock, _, day = FORMS["clock_first"].write(ts).partition(" on ")
    plain = re.sub(r"(?<=\d)(st|nd|rd|th)", "", day)

    moment = datetime.strptime(f"{clock} {plain}", "%H:%M:%S %B %d, %Y").replace(tzinfo=UTC)
    assert moment.timestamp() == ts
