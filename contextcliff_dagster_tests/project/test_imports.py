"""No test is imported by product or benchmarks; what is private to Dagster, by one file."""

from __future__ import annotations

import ast
import re
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


_OF_EXTENSIONS = "contextcliff_dagster_tests.extensions."


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("contextcliff_dagster", ()),
        ("tools", ()),
        ("benchmarks", ("contextcliff_dagster_tests.support.", _OF_EXTENSIONS)),
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


def test_what_is_private_to_dagster_is_imported_in_two_files() -> None:
    private = {
        path.relative_to(ROOT).as_posix()
        for folder in ("contextcliff_dagster", "tools", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if any(re.match(r"dagster(_\w+)?\._", module) for module in imports_of(path))
        or re.search(r"\bdg\._", path.read_text(encoding="utf-8"))
    }
    # The second is a process of its own, and its imports would slow down every step.
    assert private == {
        "contextcliff_dagster/defs/dagster_internals.py",
        "contextcliff_dagster/cli/webserver/services.py",
    }


def test_what_is_private_to_dagster_is_nothing_that_it_exports_and_all_used() -> None:
    import dagster

    from contextcliff_dagster.defs import dagster_internals

    paths = (ROOT / "contextcliff_dagster").rglob("*.py")
    imported = set().union(*(imports_of(path) for path in paths))
    used = {
        name
        for name in dagster_internals.__all__
        if f"contextcliff_dagster.defs.dagster_internals.{name}" in imported
    }
    assert used == set(dagster_internals.__all__)
    assert not [name for name in dagster_internals.__all__ if hasattr(dagster, name)]
    assert all(hasattr(dagster_internals, name) for name in dagster_internals.__all__)
