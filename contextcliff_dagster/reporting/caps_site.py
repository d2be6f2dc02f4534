"""What the gallery and the atlas share: an index of caps, with filters, as HTML and Markdown."""

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
    """A cap in the table.

    ``page``: of the site, without suffix. ``picks``: what the filters ask for, model and task among
    them. ``facts``: what the cap must never be without; ``origin`` stands on the page alone.
    """

    page: str
    cap: str
    picks: Mapping[str, str]
    facts: Sequence[str]
    origin: str = ""


@dataclass(frozen=True)
class CapsSite:
    """An index of caps. ``mark``: its file for machines; a folder with it may be written again."""

    title: str
    mark: str
    words: Sequence[str]
    entries: Sequence[Entry]
    folds: Sequence[Fold]
    machine: Mapping[str, Any]
    sparse: bool = False
    """Most models lack most tasks: each has one cell for all."""
    below: str = ""
    """HTML below the table."""
    suffix: str = "md"
    """Of the pages that index.md leads to."""

    def write(self, folder: Path) -> Path:
        """Write index.html, index.md and the file for machines; the path of the first.

        Raises:
            StoreError: the folder cannot be written.
        """
        machine = json.dumps(self.machine, indent=1, ensure_ascii=False)
        head = "".join(f"<p>{text(line)}</p>\n" for line in self.words)
        filters = Interactive(None, ("gallery.js",), "gallery.css")
        page = html_page(self.title, head + self._table() + self.below, self.folds, filters)
        top = Section(self.title, [*map(Paragraph, self.words), self._rows()], 1)
        below = [one for f in self.folds for one in (Section(f.question), *f.sections)]
        # The mark first: what was cut short may be made again.
        write_atomic(folder / self.mark, f"{machine}\n".encode())
        write_atomic(folder / "index.md", as_page([top, *below]).encode())
        write_atomic(folder / "index.html", page.encode())
        return folder / "index.html"

    def _table(self) -> str:
        models, tasks = (sorted({one.picks[key] for one in self.entries}) for key in PLACE)
        columns = ["caps by task"] if self.sparse else tasks
        cells: dict[tuple[str, str], list[str]] = {}
        for one in self.entries:
            model, task = (one.picks[key] for key in PLACE)
            named = " ".join(f'data-{key}="{text(value)}"' for key, value in one.picks.items())
            told = [*([task] if self.sparse else []), *one.facts, *filter(None, [one.origin])]
            cells.setdefault((model, columns[0] if self.sparse else task), []).append(
                f'<div class="entry" {named}><a href="{text(one.page)}.html">{text(one.cap)}</a>'
                f"{''.join(f'<span>{text(fact)}</span>' for fact in told)}</div>"
            )
        around = '<div class="entries">{}</div>' if self.sparse else "{}"
        rows = "".join(
            f'<tr><th scope="row">{text(model)}</th>'
            + "".join(
                f"<td>{around.format(''.join(cells.get((model, column), ['–'])))}</td>"
                for column in columns
            )
            + "</tr>\n"
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
        found = ""
        for name in self.entries[0].picks if self.entries else ():
            values = map(text, sorted({one.picks[name] for one in self.entries}))
            every = "".join(f'<option value="{one}">{one}</option>' for one in values)
            found += f'<label>{name}<select name="{name}"><option value="">all</option>'
            found += f"{every}</select></label>"
        return found

    def _rows(self) -> DataTable:
        rows: list[list[Cell]] = [
            [
                Code(one.picks["model"]),
                one.picks["task"],
                [Link(one.cap, f"{one.page}.{self.suffix}")],
                Bracketed("; ".join(one.facts)),
            ]
            for one in self.entries
        ]
        return DataTable(["model", "task", "safe cap", "measured"], rows, right=())


PLACE = ("model", "task")


def check_folder(folder: Path, mark: str, what: str) -> None:
    """Raise a StoreError if ``folder`` holds a page that is no ``what``."""
    if (folder / "index.html").exists() and not (folder / mark).exists():
        raise StoreError(f"{folder} holds a page that is no {what}; give another --output DIR.")
