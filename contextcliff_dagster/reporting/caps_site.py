"""Filterable index of safe caps, shared by the gallery and the atlas, as HTML and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.reporting.html.render import Interactive, html_page, text
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Cell,
    Code,
    DataTable,
    Fold,
    Link,
    Paragraph,
    Section,
)
from contextcliff_dagster.store import write_atomic


class Entry(NamedTuple):
    """A table entry for one cap.

    ``page``: its page in the site, without suffix. ``picks``: filter values, including model and
    task. ``facts``: qualifiers that always accompany the cap. ``origin``: shown on the page only.
    ``useless``: whether the cap is greyed.
    """

    page: str
    cap: str
    picks: Mapping[str, str]
    facts: Sequence[str]
    origin: str = ""
    useless: bool = False


@dataclass(frozen=True)
class CapsSite:
    """An index of caps. ``mark``: its JSON file, whose presence lets a folder be overwritten."""

    title: str
    mark: str
    words: Sequence[str]
    entries: Sequence[Entry]
    folds: Sequence[Fold]
    machine: Mapping[str, Any]
    sparse: bool = False
    """Whether most models lack most tasks; if so, each model has one cell for all its tasks."""
    below: str = ""
    """HTML shown below the table."""
    suffix: str = "md"
    """File suffix of the pages that index.md links to."""

    def write(self, folder: Path) -> Path:
        """Write index.html, index.md and the machine-readable file; return the path of index.html.

        Raises:
            StoreError: the folder cannot be written.
        """
        machine = json.dumps(self.machine, indent=1, ensure_ascii=False)
        head = "".join(f"<p>{text(line)}</p>\n" for line in self.words)
        filters = Interactive(None, ("gallery.js",), "gallery.css")
        page = html_page(self.title, head + self._table() + self.below, self.folds, filters)
        top = Section(self.title, [*map(Paragraph, self.words), self._rows()], 1)
        below = [section for f in self.folds for section in (Section(f.question), *f.sections)]
        # The mark first: an interrupted site may be made again.
        write_atomic(folder / self.mark, f"{machine}\n".encode())
        write_atomic(folder / "index.md", as_page([top, *below]).encode())
        write_atomic(folder / "index.html", page.encode())
        return folder / "index.html"

    def _table(self) -> str:
        models = dict.fromkeys(tile.picks["model"] for tile in self.entries)
        tasks = sorted({tile.picks["task"] for tile in self.entries})
        columns = ["caps by task"] if self.sparse else tasks
        cells: dict[tuple[str, str], list[str]] = {}
        for tile in self.entries:
            model, task = (tile.picks[key] for key in PLACE)
            attrs = " ".join(f'data-{key}="{text(value)}"' for key, value in tile.picks.items())
            facts = [*([task] if self.sparse else []), *tile.facts, *filter(None, [tile.origin])]
            cells.setdefault((model, columns[0] if self.sparse else task), []).append(
                f'<div class="entry{" useless" * tile.useless}" {attrs}>'
                f'<a href="{text(tile.page)}.html">{text(tile.cap)}</a>'
                f"{''.join(f'<span>{text(fact)}</span>' for fact in facts)}</div>"
            )
        around = '<div class="entries">{}</div>' if self.sparse else "{}"

        def cell(model: str, column: str) -> str:
            inside = around.format("".join(cells.get((model, column), ["–"])))
            return f'<td data-column="{text(column)}">{inside}</td>'

        rows = "".join(
            f'<tr><th scope="row">{text(model)}</th>'
            f"{''.join(cell(model, column) for column in columns)}</tr>\n"
            for model in models
        )
        head = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
        return (
            f'<div id="filters" hidden>{self._filters()}<p id="count" role="status"></p></div>\n'
            '<div id="caps" class="table" role="region" tabindex="0" aria-label="Caps"><table>'
            f'<thead><tr><th scope="col">model</th>{head}</tr></thead>\n<tbody>{rows}</tbody>'
            "</table></div>\n"
        )

    def _filters(self) -> str:
        menus = ""
        for name in self.entries[0].picks if self.entries else ():
            values = map(text, sorted({entry.picks[name] for entry in self.entries}))
            options = "".join(f'<option value="{value}">{value}</option>' for value in values)
            menus += f'<label>{name}<select name="{name}"><option value="">all</option>'
            menus += f"{options}</select></label>"
        return menus

    def _rows(self) -> DataTable:
        rows: list[list[Cell]] = [
            [
                Code(entry.picks["model"]),
                entry.picks["task"],
                [Link(entry.cap, f"{entry.page}.{self.suffix}")],
                Bracketed("; ".join(entry.facts)),
            ]
            for entry in self.entries
        ]
        return DataTable(["model", "task", "safe cap", "measured"], rows, right=())


PLACE = ("model", "task")


def check_folder(folder: Path, mark: str, what: str) -> None:
    """Raise StoreError if ``folder`` has an index.html that the site ``what`` did not generate."""
    if (folder / "index.html").exists() and not (folder / mark).exists():
        raise StoreError(f"{folder} holds a page that is not from the {what}; use --output DIR.")
