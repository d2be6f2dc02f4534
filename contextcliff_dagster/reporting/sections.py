"""A report as data: sections of blocks, rendered as Markdown and other formats.

Belongs here: the contents that a section may have. Does not belong here: what a report states
(`length_profile`, the experiments), and how a format writes it (`markdown`, `html.render`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Code:
    """A name or hash shown verbatim, as code; None is shown as "not stated"."""

    text: Any


@dataclass(frozen=True)
class Strong:
    """Emphasised text."""

    text: str


@dataclass(frozen=True)
class Bracketed:
    """Text of this program with intervals in square brackets; never a user's or model's text."""

    text: str


@dataclass(frozen=True)
class Link:
    """A link to another page of the same report; ``href`` is relative and never user input."""

    text: str
    href: str


Span = str | Code | Strong | Bracketed | Link
Text = Span | Sequence[Span]
"""Inline text. A plain string is never markup: it is shown as written."""

Cell = Text | int | float | None


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: Text


@dataclass(frozen=True)
class Lines:
    """Sentences of one paragraph, each on its own line."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Item:
    """A bullet with nested bullets."""

    text: Text
    parts: Sequence[Text]


@dataclass(frozen=True)
class Bullets:
    """A list of short statements."""

    items: Sequence[Text | Item]


@dataclass(frozen=True)
class DataTable:
    """A table with named columns; None is shown as a dash.

    ``caption``: what the table shows, with its n, printed above it. ``right``: indices of the
    right-aligned columns; None: all columns that hold only numbers.
    """

    columns: Sequence[Text]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    right: Sequence[int] | None = None

    @property
    def right_aligned(self) -> Sequence[int]:
        """Return the indices of the right-aligned columns."""
        if self.right is not None:
            return self.right
        columns = range(len(self.columns) if self.rows else 0)
        return [i for i in columns if all(is_number(row[i]) for row in self.rows)]


@dataclass(frozen=True)
class Figure:
    """A picture file next to the report. ``alt`` describes it.

    ``png``: its content, if it is already drawn.
    """

    file: Path
    alt: str
    png: bytes | None = field(default=None, repr=False)


Block = Paragraph | Lines | Bullets | DataTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it. ``level``: 1 for the page, 2 a section, 3 a subsection.

    ``first``: whether a report shows it right after the answer, before the supporting evidence.
    """

    title: Text
    blocks: Sequence[Block] = field(default_factory=tuple)
    level: int = 2
    first: bool = False


def deeper(sections: Iterable[Section]) -> list[Section]:
    """Return ``sections`` moved one heading level down."""
    return [replace(section, level=section.level + 1) for section in sections]


def of_each(results: Sequence[Any], make: Callable[[Any], Sequence[Section]]) -> list[Section]:
    """Return the sections that ``make`` returns per result, under their model if several."""
    sections: list[Section] = []
    for result in results:
        parts = make(result)
        if parts and len(results) > 1:
            sections += [Section([Code(result.model)], (), 3), *deeper(parts)]
        else:
            sections += parts
    return sections


def filled(table: DataTable) -> DataTable | None:
    """Return ``table``; None if it has no rows."""
    return table if table.rows else None


def picture(file: str, alt: str, there: Container[str]) -> list[Block]:
    """Return the picture in ``file`` as a block; empty unless the file is in ``there``."""
    return [Figure(Path(file), alt)] if file in there else []


class Fold(NamedTuple):
    """A reader's question and the sections that answer it (level 3 or deeper), folded in HTML."""

    question: str
    sections: Sequence[Section]


class Page(NamedTuple):
    """A whole report: ``head`` is shown first, ``folds`` hold the evidence."""

    head: Sequence[Section]
    folds: Sequence[Fold]

    def flat(self) -> list[Section]:
        """Return every section in order, each question as a level-2 heading."""
        folded = ([Section(fold.question), *fold.sections] for fold in self.folds)
        return [*self.head, *(section for sections in folded for section in sections)]


def as_folds(sections: Sequence[Section]) -> list[Fold]:
    """Return ``sections`` as folds, one for each level-2 section, titled like it."""
    folds: list[Fold] = []
    for section in sections:
        if section.level <= 2 or not folds:
            title = "".join(s if isinstance(s, str) else str(s.text) for s in spans(section.title))
            folds.append(Fold(title, [replace(section, title="")]))
        else:
            folds[-1] = Fold(folds[-1].question, [*folds[-1].sections, section])
    return folds


def pictures_of(sections: Sequence[Section]) -> dict[str, bytes]:
    """Return the PNG pictures contained in ``sections``, by file name."""
    blocks = (block for section in sections for block in section.blocks)
    return {b.file.name: b.png for b in blocks if isinstance(b, Figure) and b.png is not None}


def spans(text: Text) -> Sequence[Span]:
    """Return the spans of ``text``."""
    return [text] if isinstance(text, Span) else text


def is_number(value: Cell) -> bool:
    """Return whether a cell may be part of a column of numbers: a number or None."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell_words(value: Cell, write: Callable[[Text], str]) -> str:
    """Return a cell as shown; ``write`` renders text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else write(value)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of ``value`` (sections or part of one) with ``change`` applied to all texts."""
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [part.name for part in fields(value)]
        return replace(value, **{name: map_texts(getattr(value, name), change) for name in names})
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value
