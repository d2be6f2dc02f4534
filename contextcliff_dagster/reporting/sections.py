"""A report as data: sections of blocks, which Markdown (and other formats) render.

Belongs here: what a section may hold. Does not belong here: what is said (the experiments), and how
one format writes it (`markdown.render`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True)
class Paragraph:
    """Running text. Plain: what looks like markup is shown as written."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Short statements, one a line."""

    items: Sequence[str]


@dataclass(frozen=True)
class DataTable:
    """Named columns; numbers are right-aligned, None is shown as a dash.

    ``caption``: what the table shows, with its n; the reader sees it above the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture in a file of its own next to the report. ``alt`` says what it shows."""

    file: Path
    alt: str


Block = Paragraph | Bullets | DataTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it. ``level`` 2 is a section, 3 a part of one."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    level: int = 2


def map_texts(sections: Sequence[Section], change: Callable[[str], str]) -> list[Section]:
    """Return ``sections`` with every text in them put through ``change``."""
    return [_mapped(section, change) for section in sections]


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in fields(value)]
        return replace(value, **{name: _mapped(getattr(value, name), change) for name in names})
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value
