"""What a message says to install is a command that works: by this environment's Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from contextcliff_dagster_tests.support.paths import CHECKOUT

FILES = sorted([*CHECKOUT.glob("contextcliff_dagster/**/*.py"), *CHECKOUT.glob("tools/*.py")])
BARE = re.compile(r"(?<!\{\} -m )(?<!bin/)\bpip3? install|install the extra|contextcliff-dagster\[")
"""A command without an interpreter (`{}` is a value of an f-string), and an extra without a
command."""
ALLOWED = {
    ("contextcliff_dagster/contracts/errors.py", "contextcliff-dagster[{}]"): "makes the commands",
}
"""File and string -> why it may."""


def strings(source: str) -> Iterator[str]:
    """The strings of a file without its docstrings; values of f-strings are ``{}``."""
    nodes = list(ast.walk(ast.parse(source)))
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in node.values}
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield "".join(map(str, parts))
        elif id(node) in skipped or not isinstance(node, ast.Constant):
            continue
        elif isinstance(node.value, str):
            yield node.value


def test_no_message_names_a_bare_pip() -> None:
    found = {
        (str(path.relative_to(CHECKOUT)), text)
        for path in FILES
        for text in strings(path.read_text(encoding="utf-8"))
        if BARE.search(text)
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "is_bare"),
    [
        ("say('install it with `pip install x`')", True),
        ("say(f'{name} needs x: `pip ' 'install x`')", True),
        ("say(f'add contextcliff-dagster[{name}]')", True),
        ("say('install the extra `x`')", True),
        ("say(f'`{python} -m pip install x`')", False),
        ("say('`.venv/bin/pip install x`')", False),
        ("def f():\n    'What pip install does.'", False),
    ],
)
def test_a_bare_command_is_seen(source: str, is_bare: bool) -> None:
    assert any(BARE.search(text) for text in strings(source)) is is_bare
