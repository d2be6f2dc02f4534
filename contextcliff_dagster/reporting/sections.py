"""A report as data: sections of blocks, which Markdown (and other formats) render.

Belongs here: what a section may hold. Does not belong here: what a report states
(`length_profile`, the experiments), and how one format writes it (`markdown.render`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Code:
    """A name or hash as written, set apart from the sentence; None is shown as not stated."""

    text: Any


@dataclass(frozen=True)
class Strong:
    """Words to catch the eye."""

    text: str


@dataclass(frozen=True)
class Bracketed:
    """Numbers of our own with intervals in square brackets, and nothing from outside."""

    text: str


@dataclass(frozen=True)
class Link:
    """Words that lead to another page of the same report; ``href`` is relative and our own."""

    text: str
    href: str


Span = str | Code | Strong | Bracketed | Link
Text = Span | Sequence[Span]
"""Inline text. A plain string is no markup: lookalikes are shown as written."""

Cell = Text | int | float | None


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: Text


@dataclass(frozen=True)
class Lines:
    """Sentences of one paragraph, each on a line of its own in the source."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Item:
    """A bullet with bullets of its own."""

    text: Text
    parts: Sequence[Text]


@dataclass(frozen=True)
class Bullets:
    """Short statements, one a line."""

    items: Sequence[Text | Item]


@dataclass(frozen=True)
class DataTable:
    """Named columns; None is shown as a dash.

    ``caption``: what the table shows, with its n; the reader sees it above the table. ``right``:
    columns aligned to the right, None for those that hold numbers alone.
    """

    columns: Sequence[Text]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    right: Sequence[int] | None = None


@dataclass(frozen=True)
class Figure:
    """A picture in a file of its own next to the report. ``alt`` says what it shows.

    ``png``: its content, where it was drawn already.
    """

    file: Path
    alt: str
    png: bytes | None = field(default=None, repr=False)


Block = Paragraph | Lines | Bullets | DataTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it. ``level`` 1 is the page, 2 a section, 3 a part of one.

    ``first``: a report shows it next to its answer, before what carries that.
    """

    title: Text
    blocks: Sequence[Block] = field(default_factory=tuple)
    level: int = 2
    first: bool = False


def deeper(sections: Iterable[Section]) -> list[Section]:
    """The sections one level below theirs."""
    return [replace(section, level=section.level + 1) for section in sections]


def of_each(results: Sequence[Any], make: Callable[[Any], Sequence[Section]]) -> list[Section]:
    """The sections that ``make`` returns of each result; of several below the model's name."""
    sections: list[Section] = []
    for result in results:
        made = make(result)
        if made and len(results) > 1:
            sections += [Section([Code(result.model)], (), 3), *deeper(made)]
        else:
            sections += made
    return sections


def picture(file: str, alt: str, there: Container[str]) -> list[Block]:
    """The picture in ``file``, where that is ``there``."""
    return [Figure(Path(file), alt)] if file in there else []


class Fold(NamedTuple):
    """A reader's question and the sections that answer it, level 3 and deeper; folded in HTML."""

    question: str
    sections: Sequence[Section]


class Page(NamedTuple):
    """A whole report: the reader sees ``head`` first; ``folds`` hold its evidence."""

    head: Sequence[Section]
    folds: Sequence[Fold]

    def flat(self) -> list[Section]:
        """Every section in order, each question as a heading of level 2."""
        folded = ([Section(fold.question), *fold.sections] for fold in self.folds)
        return [*self.head, *(section for sections in folded for section in sections)]


def as_folds(sections: Sequence[Section]) -> list[Fold]:
    """Return ``sections`` with one fold for each of level 2, under its title."""
    folds: list[Fold] = []
    for section in sections:
        if section.level <= 2 or not folds:
            title = "".join(s if isinstance(s, str) else str(s.text) for s in spans(section.title))
            folds.append(Fold(title, [replace(section, title="")]))
        else:
            folds[-1] = Fold(folds[-1].question, [*folds[-1].sections, section])
    return folds


def pictures_of(sections: Sequence[Section]) -> dict[str, bytes]:
    """Return the pictures that ``sections`` bring along, by the name of their file."""
    blocks = (block for section in sections for block in section.blocks)
    return {b.file.name: b.png for b in blocks if isinstance(b, Figure) and b.png is not None}


def spans(text: Text) -> Sequence[Span]:
    """Return ``text`` as its spans."""
    return [text] if isinstance(text, Span) else text


def is_number(value: Cell) -> bool:
    """Whether a cell may stand in a column of numbers."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell_words(value: Cell, write: Callable[[Text], str]) -> str:
    """A cell as it is shown; ``write`` gives its words."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else write(value)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return ``value``, sections or a part of one, with every text in it put through ``change``."""
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [part.name for part in fields(value)]
        return replace(value, **{name: map_texts(getattr(value, name), change) for name in names})
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value
