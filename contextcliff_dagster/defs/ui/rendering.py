"""Rendering of results in the Dagster UI: tables, column schemas, numbers and pictures.

The UI shows Markdown of less than 1,000 characters in place and hides longer text behind a click;
it drops raw HTML but shows images with `data:` URLs. Table cells must be plain Python scalars.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from contextcliff_dagster.contracts import Column, Table
from contextcliff_dagster.defs.home import LINKED
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from PIL import Image

    from contextcliff_dagster.contracts.results import Cliffs

INLINE_MARKDOWN_LIMIT = 1_000
REPORTS_PATH = "/contextcliff/reports"
"""Path of `contextcliff ui` under which it serves the reports in the store."""
SMALL = "small"
"""Query of a picture that is to fit into a table of the UI, which shows pictures at their size."""
_SMALL_WIDTH = 460
TABLE_LIMIT, TEXT_LIMIT, PICTURE_LIMIT = 24_000, 8_000, 38_000
"""Limits in bytes, because every materialization of every partition is kept in the event log."""
MOST_CELLS = 150
"""Maximum number of rows in a table by model and cell; a longer table is by model only."""
_SMALLER = ((1_080, 60), (1_080, 45), (1_080, 30), (900, 30), (900, 20), (720, 30), (720, 20))
"""Picture widths (pixels) and qualities, best first; text in a picture is legible at each."""
_ROW_BYTES = 40
"""Bytes that Dagster adds to each row of a table."""
_SVG_SAFE = " =:/,'"

_UI_TYPES = {
    "string": "string",
    "json": "string",
    "int64": "int",
    "float64": "float",
    "bool": "bool",
    "timestamp": "datetime",
    "list<string>": "array<string>",
    "list<float64>": "array<double>",
}


def column_schema(table: Table) -> dg.TableSchema:
    """Return the UI's column schema of a declared table."""

    def described(column: Column) -> dg.TableColumn:
        return dg.TableColumn(
            column.name,
            _UI_TYPES[column.type],
            description=column.described(),
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
        )

    return dg.TableSchema([described(column) for column in table.columns])


def column_lineage(
    made: Table, sources: Mapping[dg.AssetKey, Table], computed_from: Sequence[str]
) -> dg.TableColumnLineage:
    """Return the lineage of a table's columns in the UI: the column of that name in the first of
    ``sources`` that has it, else the columns ``computed_from``."""

    def columns(names: Sequence[str]) -> list[dg.TableColumnDep]:
        of = ((name, [k for k, t in sources.items() if name in t.column_names]) for name in names)
        return [dg.TableColumnDep(keys[0], name) for name, keys in of if keys]

    named = {name: columns([name]) for name in made.column_names}
    return dg.TableColumnLineage({name: of or columns(computed_from) for name, of in named.items()})


def table(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """Return rows as a UI table, with a note if there are none or some do not fit."""
    if not rows:
        return dg.MetadataValue.text("no rows")
    shown = [{k: plain(v) for k, v in row.items()} for row in rows]
    sizes = accumulate(_ROW_BYTES + len(json.dumps(row)) for row in shown)
    kept = max(sum(size <= TABLE_LIMIT for size in sizes), 1)
    if kept < len(rows):
        first, *others = shown[0]
        left = f"… and {len(rows) - kept:,} more rows"
        shown[kept:] = [{first: left, **dict.fromkeys(others, "–")}]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in shown])


def long_text(text: str, path: Path) -> dg.MetadataValue:
    """Return text as Markdown, cut to the limit with the path of the complete file."""
    if len(text.encode()) > TEXT_LIMIT:
        kept = text.encode()[:TEXT_LIMIT].decode(errors="ignore").rpartition("\n")[0]
        text = f"{kept}\n\n… The whole text: `{path}`"
    return dg.MetadataValue.md(text)


def plain(value: Any) -> str | int | float | bool:
    """Return ``value`` as a scalar the UI can show; a missing value becomes a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, (bool, int, str)):
        return value
    item = getattr(value, "item", None)
    return plain(item()) if item is not None else str(value)


def page(file: Path, store: Store) -> dg.MetadataValue:
    """Return a link that opens the report's ``file``, or its path if the UI serves no reports."""
    if not os.environ.get(LINKED):
        return dg.MetadataValue.path(str(file))
    return dg.MetadataValue.url(_address(file, store))


def _address(file: Path, store: Store) -> str:
    return f"{REPORTS_PATH}/{quote(file.relative_to(store.root).as_posix())}"


def picture(file: Path, store: Store) -> dg.MetadataValue:
    """Return a report's PNG file, shown in place if the UI serves reports, else behind a click."""
    if not os.environ.get(LINKED):
        return pictures([file])[file.stem]
    return dg.MetadataValue.md(f"![{file.stem}]({_address(file, store)}?{SMALL})")


def small_picture(file: Path) -> bytes:
    """Return a PNG file as WebP that fits into a table of the UI."""
    from PIL import Image

    with Image.open(file) as image:
        return _webp(image.convert("RGB"), _SMALL_WIDTH, quality=90)


def pictures(files: Sequence[Path]) -> Mapping[str, dg.MetadataValue]:
    """Return name -> a PNG file as Markdown: two files if they fit, else the first or a sentence.

    The UI shows a picture behind a click, at its own size, in a dialog of 1,200 pixels.
    """
    for shown in (files[:2], files[:1]):
        limit = PICTURE_LIMIT // max(len(shown), 1)
        drawn = {file.stem: _markdown(file, limit) for file in shown}
        kept = {name: dg.MetadataValue.md(text) for name, text in drawn.items() if text}
        if len(kept) == len(shown):
            return kept
    return {files[0].stem: dg.MetadataValue.md(f"Too large for the event log: `{files[0]}`")}


def _markdown(file: Path, limit: int) -> str | None:
    """Return the largest picture within ``limit`` bytes; None if even the smallest is too large."""
    from PIL import Image

    with Image.open(file) as image:
        drawn = image.convert("RGB")
    for width, quality in _SMALLER:
        data = base64.b64encode(_webp(drawn, width, quality)).decode()
        if len(data) <= limit:
            return f"![{file.stem}](data:image/webp;base64,{data})"
    return None


def _webp(image: Image.Image, width: int, quality: int) -> bytes:
    import PIL.WebPImagePlugin  # noqa: F401  # registers the format; `save` would load all 40
    from PIL import Image as Images

    if image.width > width:
        height = round(image.height * width / image.width)
        image = image.resize((width, height), Images.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()


def curve_line(cliffs: Cliffs) -> str:
    """Return a model's verdict, cap and a small curve as one line of Markdown."""
    cap = cliffs.safe_cap_tokens
    cap_text = f"cap **{cap:,}** tokens" if cap is not None else "no cap supported"
    verdict = cliffs.verdict.value.replace("_", " ")
    return f"**{cliffs.model}** {_sparkline(cliffs)} {verdict}, {cap_text}"


def inline(lines: Iterable[str]) -> dg.MetadataValue:
    """Return lines as Markdown shown in place, with a count of the lines that do not fit."""
    kept: list[str] = []
    lines = list(lines)
    for number, line in enumerate(lines):
        more = f"\n\n… and {len(lines) - number} more"
        if len("\n\n".join([*kept, line])) + len(more) >= INLINE_MARKDOWN_LIMIT:
            return dg.MetadataValue.md("\n\n".join(kept) + more)
        kept.append(line)
    return dg.MetadataValue.md("\n\n".join(kept))


def _sparkline(cliffs: Cliffs) -> str:
    """Return the mean score over log length as a tiny SVG of about 350 characters."""
    points = [
        (b.median_tokens, b.mean) for b in cliffs.bins if b.mean is not None and b.median_tokens
    ]
    if len(points) < 2:
        return ""
    low, high = math.log(points[0][0]), math.log(points[-1][0])
    path = " ".join(
        f"{2 + 96 * (math.log(x) - low) / max(high - low, 1e-9):.0f},{22 - 20 * y:.0f}"
        for x, y in points
    )
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' width='100' height='24'>"
        f"<polyline points='{path}' fill='none' stroke='#3b82f6' stroke-width='2'/></svg>"
    )
    return f"![curve](<data:image/svg+xml,{quote(svg, safe=_SVG_SAFE)}>)"
