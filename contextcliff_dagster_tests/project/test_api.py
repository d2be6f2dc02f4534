"""What docs tell people to import is in `contextcliff_dagster.api`, is there, and costs nothing."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import contextcliff_dagster
from contextcliff_dagster import api

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "studies/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docker").glob("*.md")),
]
PUBLIC = {"contextcliff_dagster"} | {
    f"contextcliff_dagster.{name}" for name in ("api", "policy", "gateway.asgi", "definitions")
}
IMPORTS = re.compile(r"^ *from (contextcliff_dagster[\w.]*) import (\([^)]*\)|[^\n]*)", re.M)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def taught() -> list[tuple[str, str, str]]:
    """(page, module, name) of every name that a page imports from the package."""
    return [
        (page.name, module, name.split(" as ")[0].strip())
        for page in PAGES
        for module, names in IMPORTS.findall(page.read_text(encoding="utf-8"))
        for name in names.split("#")[0].strip("() \n").split(",")
        if name.strip()
    ]


def test_pages_import_from_the_public_addresses_only() -> None:
    assert {page for page, *_ in taught()} >= {"python.md", "analyze.md", "corpora.md", "policy.md"}
    assert not [row for row in taught() if row[1] not in PUBLIC]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"^ *import contextcliff_dagster", text, re.M), page


def test_every_name_that_a_page_imports_is_there() -> None:
    for page, module, name in taught():
        assert hasattr(importlib.import_module(module), name), (page, name)
        if module == "contextcliff_dagster.api":
            assert name in api.__all__ or api._exports(name), (page, name)


def test_every_module_that_a_page_runs_is_there() -> None:
    command = re.compile(r"python -m ((?:contextcliff_dagster|tools)[\w.]*)")
    for page in PAGES:
        for module in command.findall(page.read_text(encoding="utf-8")):
            assert find_spec(module), (page, module)


def test_type_checkers_see_what_is_looked_up_at_run_time() -> None:
    tree = ast.parse(Path(api.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {
        name: f"contextcliff_dagster.{module}.{name}" for name, module in api._MODULES.items()
    }


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_of_the_list_can_be_imported(name: str) -> None:
    assert getattr(api, name).__name__ == name
    assert name in dir(api)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'profile_everything'"):
        _ = api.profile_everything


def test_importing_the_package_loads_nothing() -> None:
    loaded = run(
        "import sys; before = set(sys.modules); import contextcliff_dagster; "
        "print(sorted(set(sys.modules) - before))"
    )
    assert ast.literal_eval(loaded) == ["__future__", "contextcliff_dagster"]
    names = run("import contextcliff_dagster as c; print(c.__all__, set(c.__all__) <= set(dir(c)))")
    assert names == "['analyze', 'compare', 'profile'] True"
    with pytest.raises(AttributeError, match="has no attribute 'measure'"):
        _ = contextcliff_dagster.measure


def test_importing_it_loads_no_other_module_of_the_package() -> None:
    loaded = run(
        "import sys; before = set(sys.modules); import contextcliff_dagster.api; "
        "print([m for m in set(sys.modules) - before "
        "if m.partition('.')[0] not in sys.stdlib_module_names])"
    )
    assert sorted(ast.literal_eval(loaded)) == ["contextcliff_dagster", "contextcliff_dagster.api"]
