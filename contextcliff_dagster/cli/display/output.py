"""What commands print on stdout: tables that survive a pipe, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON value, indented, the keys in the given order; NaN is not JSON and never printed."""
    click.echo(json.dumps(value, indent=2, default=str, allow_nan=False, ensure_ascii=False))


def print_either(value: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    """``value`` where JSON was asked for, else ``sentence``."""
    if as_json:
        print_json(value)
    else:
        click.echo(sentence)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns under their names; the last one is cut to the width of a terminal."""
    limit = max(shutil.get_terminal_size().columns, 60) if sys.stdout.isatty() else sys.maxsize
    lines = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        line = line.rstrip()
        click.echo(line if len(line) <= limit else line[: limit - 1] + "…")
