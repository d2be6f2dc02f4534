"""What the tests of extensions add to the tables of the core's tests.

An extension's tests may have a module ``tables``. Its names are those below; all may be missing.

    LINES, VALUES, NAMED    as in `cli.bad_input.table_of_options`
    PLACES                  as in `cli.bad_input.table_of_files`
    cases()                 further cases of bad input
    NOT_RUN, MORE           as in `project.test_journeys`
    write_world(folder)     puts there what its pages take for granted
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from contextcliff_dagster.contracts.extensions import extensions

_TESTS = "contextcliff_dagster_tests.extensions"


def tables() -> list[ModuleType]:
    """The tables of the extensions that are installed and have tests here."""
    names = [f"{_TESTS}.{name}" for name in extensions()]
    there = [name for name in names if find_spec(name) and find_spec(f"{name}.tables")]
    return [import_module(f"{name}.tables") for name in there]


def added(name: str) -> dict[str, Any]:
    """The dictionaries called ``name`` of all tables as one."""
    return {key: value for one in tables() for key, value in getattr(one, name, {}).items()}
