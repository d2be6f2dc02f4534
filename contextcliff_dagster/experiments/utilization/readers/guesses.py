"""Answers without reading: all that are plausible for a question, and one drawn evenly."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.experiments.utilization.benchmarks.schema import DOMAINS

_RANGES = {
    "units": (1, 50),
    "stock": (0, 200),
    "facts": (0, 50),
    "initial_weight": (1, 100),
    "weight": (1, 200),
    "distance": (1, 400),
    "max_flow": (1, 400),
}
"""Lowest and highest number of each question, about those of the documents."""
_WAREHOUSE = re.compile(r"WH-\d+|\bWarehouse \d+")
_LOOKED_AT = 20_000


def share(*key: str) -> float:
    """Return a number in [0, 1) that the texts of ``key`` decide, evenly over keys."""
    digest = hashlib.sha256("\n".join(key).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def plausible(about: Mapping[str, Any], document: str) -> list[str]:
    """Return the answers that a guesser picks from, of which one may be right."""
    if about["ask"] == "value":
        return [str(value) for value in DOMAINS[about["attr"]]]
    if about["ask"] == "transfers":
        numbers = {int(re.sub(r"\D", "", one)) for one in _WAREHOUSE.findall(document[:_LOOKED_AT])}
        return [f"WH-{number:04d}" for number in sorted(numbers)]
    lowest, highest = _RANGES[about["ask"]]
    return [str(number) for number in range(lowest, highest + 1)]


def pick(answers: Sequence[str], *key: str) -> str:
    """Return the one of ``answers`` that the texts of ``key`` decide."""
    return answers[int(share(*key) * len(answers))]
