"""Neither the product nor a benchmark rests on a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports anywhere, and every name of it, as dotted paths."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("contextcliff_dagster", ()),
        ("tools", ()),
        ("benchmarks", ("contextcliff_dagster_tests.support.",)),
    ],
)
def test_no_test_is_imported(folder: str, allowed: tuple[str, ...]) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert len(paths) > 5
    for path in paths:
        for module in imports_of(path):
            assert not any(part.startswith("test_") for part in module.split(".")), (path, module)
            if module.startswith("contextcliff_dagster_tests"):
                assert allowed
                assert module.startswith(allowed), (path, module)
