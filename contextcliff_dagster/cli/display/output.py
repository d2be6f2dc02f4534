"""What commands print on stdout: tables that survive a pipe, and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from contextcliff_dagster.reporting.wording.direction import (
    FIRST_STRONG_ISOLATE,
    POP_ISOLATE,
    columns_of,
    isolated_whole,
    padded,
)


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
    """Aligned columns under their names; the last one is cut to the width of a terminal.

    Cells with words from right to left are isolated, so that the columns keep their order.
    """
    limit = max(shutil.get_terminal_size().columns, 60) if sys.stdout.isatty() else sys.maxsize
    lines = [list(columns), *([isolated_whole(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(columns_of, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        line = "  ".join(map(padded, cells, widths)).rstrip()
        click.echo(line if columns_of(line) <= limit else _cut(line, limit))


def _cut(line: str, limit: int) -> str:
    kept, used = [], 1
    for character in line:
        used += columns_of(character)
        if used > limit:
            break
        kept.append(character)
    still_open = kept.count(FIRST_STRONG_ISOLATE) > kept.count(POP_ISOLATE)
    return "".join(kept) + "…" + POP_ISOLATE * still_open
