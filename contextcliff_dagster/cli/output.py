"""What commands print on stdout: tables that survive a pipe, and JSON."""

from __future__ import annotations

import json
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
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(name), *(len(row[i]) for row in cells)) if cells else len(name)
        for i, name in enumerate(columns)
    ]
    limit = _terminal_width()
    for row in [list(columns), *cells]:
        line = "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        click.echo(line if limit is None or len(line) <= limit else line[: limit - 1] + "…")


def _terminal_width() -> int | None:
    if not sys.stdout.isatty():
        return None
    import shutil

    return max(shutil.get_terminal_size().columns, 60)
