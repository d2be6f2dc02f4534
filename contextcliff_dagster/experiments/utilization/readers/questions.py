"""The English of a question, read back to what it asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from contextcliff_dagster.experiments.utilization.benchmarks.data import BenchmarkName
from contextcliff_dagster.experiments.utilization.benchmarks.schema import ASKS, DOMAINS
from contextcliff_dagster.experiments.utilization.benchmarks.wording import PATTERNS

_BENCHMARK: dict[str, BenchmarkName] = {
    **dict.fromkeys(("units", "stock", "transfers"), "warehouse"),
    **dict.fromkeys(("value", "facts"), "constraints"),
    **dict.fromkeys(("initial_weight", "weight", "distance", "max_flow"), "network"),
}
_TIME = r"[^()?]+\(timestamp (?P<{0}>\d+)\)"
_NAMED = r"[A-Z][a-z]+ \d+ \((?P<{0}>[A-Z]+-\d+)\)"
_PLACES = {
    **dict.fromkeys(("ts", "at"), _TIME),
    **dict.fromkeys(("warehouse", "entity", "from", "to"), _NAMED),
    "sku": r"(?P<{0}>SKU-\d+)",
    "hops": r"(?P<{0}>\d+)",
    "attr": r"(?P<{0}>\w+)",
    "value": r"(?P<{0}>\w+)",
}
_PLACE = re.compile(r"\{(\w+)\}")


class Asked(NamedTuple):
    """What a question asks: of which benchmark, and as in `benchmarks.data.Question.about`."""

    benchmark: BenchmarkName
    about: dict[str, Any]


def parse_question(text: str) -> Asked | None:
    """Return what the first question in ``text`` asks; None where there is none."""
    found = [(match.start(), key, match) for key, match in _matches(text)]
    if not found:
        return None
    _, key, match = min(found, key=lambda one: one[0])
    ask, _, more = key.partition(" ")
    words = match.groupdict()
    about: dict[str, Any] = {"ask": ask}
    for name in ASKS[ask]:
        value: Any = words.get(f"{name}_")
        if name in ("ts", "at", "hops") and value is not None:
            value = int(value)
        about[name] = value
    if ask == "units":
        about["action"] = more
    if ask == "facts" and all(isinstance(one, int) for one in DOMAINS[about["attr"]]):
        about["value"] = int(about["value"])
    return Asked(_BENCHMARK[ask], about)


def _matches(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for key, pattern in _patterns().items():
        if (match := pattern.search(text)) is not None:
            yield key, match


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {key: re.compile(_pattern(text)) for key, text in PATTERNS.items()}


def _pattern(text: str) -> str:
    written, seen = "", set()
    for number, part in enumerate(_PLACE.split(text)):
        if not number % 2:
            written += re.escape(part)
            continue
        name = f"{part}_"  # `from` would be no name of a group
        written += rf"(?P={name})" if name in seen else _PLACES[part].format(name)
        seen.add(name)
    return written.replace(re.escape("such transfers"), re.escape("such transfer") + "s?")
