"""How results look in the Dagster UI: tables, column schemas, numbers and pictures.

The UI shows Markdown below 1,000 characters in place and hides longer text behind a click; it
drops raw HTML but shows images given as `data:` addresses. Table cells must be plain Python
scalars.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from contextcliff_dagster.contracts import Column, Table

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

INLINE_MARKDOWN_LIMIT = 1_000
PICTURE_WIDTH = 1_080
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
    """The UI's column schema, derived from the table's one declaration."""

    def described(column: Column) -> dg.TableColumn:
        unit = f" [{column.unit}]" if column.unit else ""
        return dg.TableColumn(
            column.name,
            _UI_TYPES[column.type],
            description=column.description + unit,
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
        )

    return dg.TableSchema([described(column) for column in table.columns])


def table(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue:
    """Rows as a table of the UI; a note where there are none."""
    if not rows:
        return dg.MetadataValue.text("no rows")
    return dg.MetadataValue.table(
        [dg.TableRecord({k: plain(v) for k, v in r.items()}) for r in rows]
    )


def plain(value: Any) -> str | int | float | bool:
    """``value`` as a scalar the UI can show; what is not there becomes a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, (bool, int, str)):
        return value
    item = getattr(value, "item", None)
    return plain(item()) if item is not None else str(value)


def picture(png: bytes, alt: str) -> dg.MetadataValue:
    """A PNG as Markdown, which the UI shows behind a click; made narrower where it would not fit.

    The UI shows pictures at their own size in a dialog of 1,200 pixels.
    """
    import io

    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if image.width > PICTURE_WIDTH:
            height = round(image.height * PICTURE_WIDTH / image.width)
            large = image if image.mode == "RGB" else image.convert("RGB")
            small = large.resize((PICTURE_WIDTH, height), Image.Resampling.LANCZOS)
            buffer = io.BytesIO()
            # 256 colours: a plot needs no more, and every event log keeps every picture.
            small.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
            png = buffer.getvalue()
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})")


def curve_line(cliffs: Cliffs) -> str:
    """Verdict, cap and a curve a few characters wide: one line of Markdown per model."""
    cap = cliffs.safe_cap_tokens
    cap_text = f"cap **{cap:,}** tokens" if cap is not None else "no cap supported"
    verdict = cliffs.verdict.value.replace("_", " ")
    return f"**{cliffs.model}** {_sparkline(cliffs)} {verdict}, {cap_text}"


def inline(lines: Iterable[str]) -> dg.MetadataValue:
    """Markdown short enough to be shown in place; lines that do not fit are counted instead."""
    kept: list[str] = []
    lines = list(lines)
    for number, line in enumerate(lines):
        more = f"\n\n… and {len(lines) - number} more"
        if len("\n\n".join([*kept, line])) + len(more) >= INLINE_MARKDOWN_LIMIT:
            return dg.MetadataValue.md("\n\n".join(kept) + more)
        kept.append(line)
    return dg.MetadataValue.md("\n\n".join(kept))


def _sparkline(cliffs: Cliffs) -> str:
    """Mean score over log length as a tiny SVG, about 350 characters."""
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
