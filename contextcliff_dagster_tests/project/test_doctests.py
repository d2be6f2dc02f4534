"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from contextcliff_dagster.store import PACKAGE

WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


def test_estimators_and_scorers_have_examples() -> None:
    rooms = {Path(*name.split(".")[1:-1]).as_posix() for name in WITH_EXAMPLES}
    assert {"analysis", "analysis/statistics", "scoring"} <= rooms


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of(name: str) -> None:
    module = importlib.import_module(name)
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0
