"""House style of all pictures: models, zones, token ticks, text.

Colours are distinct with any colour vision (after Okabe and Ito's set, darkened). Because reports
are also printed in grey, marker and line style differ too, and zones differ in lightness.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

DPI, WIDTH = 160, 11.5
INK, SOFT_INK, FAINT = "#1F2328", "#59636E", "#D5DAE0"
ZONE_FILL = {
    "stable": "#DCEEE3",
    "transition": "#F2D58A",
    "degraded": "#DF9F91",
    "not_shown": "#E3E6EA",
}
ZONE_SHADE = {
    "stable": "#F4FAF6",
    "transition": "#FBF0D2",
    "degraded": "#F3DAD4",
    "not_shown": "#F4F5F7",
}


class Look(NamedTuple):
    """Colour, marker and line style of one model."""

    colour: str
    marker: str
    dash: tuple[float, tuple[float, ...] | None]


_COLOURS = ("#0B5394", "#D9730D", "#0F8B6D", "#B0408A", "#3D3D3D", "#4A9FD8")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[tuple[float, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 1.6)),
    (0, (6, 1.6, 1.2, 1.6)),
    (0, (1.2, 1.2)),
    (0, (9, 2.2)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
)


def look(index: int) -> Look:
    """Return the look of the model at ``index``; beyond six, marker and line style change."""
    lap, place = divmod(index, len(_COLOURS))
    return Look(_COLOURS[place], _MARKERS[(place + lap) % 6], _DASHES[(place + 2 * lap) % 6])


def line_handles(labels: Iterable[str]) -> list[Line2D]:
    """Return the handles of a legend whose lines have these ``labels``, each in its `look`."""
    from matplotlib.lines import Line2D

    styles = ((look(index), label) for index, label in enumerate(labels))
    return [
        Line2D([], [], color=style.colour, ls=style.dash, marker=style.marker, label=label)
        for style, label in styles
    ]


@contextmanager
def styled() -> Iterator[None]:
    """Apply this program's style over matplotlib's defaults, ignoring the user's matplotlibrc.

    Use it to decorate the function that draws a picture: ``@styled()``.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": ["DejaVu Sans"],
                "font.size": 11,
                "text.color": INK,
                "text.parse_math": False,
                "axes.edgecolor": SOFT_INK,
                "axes.labelcolor": INK,
                "axes.linewidth": 0.8,
                "axes.axisbelow": True,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.titlelocation": "left",
                "axes.titleweight": "bold",
                "grid.color": FAINT,
                "grid.linewidth": 0.7,
                "legend.frameon": False,
                "xtick.color": SOFT_INK,
                "ytick.color": SOFT_INK,
                "xtick.labelcolor": INK,
                "ytick.labelcolor": INK,
                "hatch.linewidth": 0.6,
                "path.sketch": None,
                **_PRINT,
            }
        )
        yield


_PRINT: Any = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "contextcliff",
}
"""Fonts are embedded as TrueType, as publishers ask; in SVG, text stays text, to be edited."""
_UNDATED: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


def printable(figure: Figure) -> Figure:
    """Return ``figure``, which now saves itself with these fonts and without a date."""
    figure.savefig = partial(_save, figure)  # type: ignore[method-assign]
    return figure


def _save(figure: Figure, file: Any, **options: Any) -> None:
    import matplotlib

    kind = options.get("format") or Path(str(file)).suffix[1:]
    with matplotlib.rc_context(_PRINT):
        options = {"metadata": _UNDATED.get(kind.lower()), **options}
        type(figure).savefig(figure, file, **options)


def figure_bytes(figure: Figure, kind: str, colours: int | None = None) -> bytes:
    """Return the figure as ``png``, ``pdf`` or ``svg``; same figure, same bytes."""
    if kind == "png":
        return png_bytes(figure, colours)
    out = io.BytesIO()
    _save(figure, out, format=kind)
    return out.getvalue()


def png_bytes(figure: Figure, colours: int | None = None) -> bytes:
    """Return the figure as PNG without time, version or other metadata: same figure, same bytes.

    ``colours`` reduces it to a palette, which makes a small picture several times smaller. Only
    then is maximum compression worth its time: it saves 2% of a report's picture in 0.3 s.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    picture = Image.fromarray(pixels).convert("RGB")
    if colours is not None:
        picture = picture.quantize(colours, dither=Image.Dither.NONE)
    out = io.BytesIO()
    picture.save(out, format="PNG", optimize=colours is not None)
    return out.getvalue()


def blank_page(height: float, width: float = WIDTH, dpi: float = DPI, **more: Any) -> Figure:
    """Return a white figure, by default of the standard width; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white", **more)
    # Without a canvas, measuring a text creates one for each text and keeps its 10 MB.
    FigureCanvasAgg(figure)
    return figure


def panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a position in inches from the figure's lower left corner."""
    wide, tall = figure.get_size_inches()
    return figure.add_axes((left / wide, bottom / tall, width / wide, height / tall))


def write(figure: Figure, x: float, y: float, text: str, **look: Any) -> Text:
    """Write ``text`` from a point in inches, left-aligned and vertically centred on it."""
    wide, tall = figure.get_size_inches()
    return figure.text(x / wide, y / tall, text, **{"ha": "left", "va": "center", **look})


def legend_above(axes: Axes, height: float) -> None:
    """Add a one-line legend above ``axes``; its bottom is at ``height``, in axes units."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.02, height),
        ncols=len(handles),
        fontsize=8.5,
        handlelength=1.5,
        handletextpad=0.35,
        columnspacing=0.9,
        borderpad=0.1,
    )


def draw_markers(
    axes: Axes, x: Any, y: Any, colour: str, *, hollow: bool = False, **look: Any
) -> None:
    """Draw markers in ``colour`` with a white rim; ``hollow``: white with a coloured rim."""
    face, rim = ("white", colour) if hollow else (colour, "white")
    axes.plot(x, y, **{"ls": "none", "marker": "o", "mfc": face, "mec": rim, **look})


def draw_difference(
    axes: Axes,
    at: tuple[float, float],
    ends: tuple[float | None, float | None],
    colour: str,
    *,
    sure: bool,
    across: bool = False,
    **look: Any,
) -> None:
    """Draw a difference as a mark with its interval, if it has one; filled if ``sure``.

    ``at``: position and difference. The difference is drawn along y or, if ``across``, along x.
    """
    place, value = at
    low, high = ends
    if low is not None and high is not None:
        bar = axes.hlines if across else axes.vlines
        bar(place, low, high, color=colour, lw=1.6, zorder=2)
    x, y = (value, place) if across else (place, value)
    style = {"ms": 7.5, "mew": 1.3, "zorder": 4, **look}
    draw_markers(axes, [x], [y], colour, hollow=not sure, **style)


def draw_band(axes: Axes, curve: Sequence[Any], colour: str, alpha: float) -> None:
    """Draw the interval around a fitted curve."""
    low, high = [point.ci_low for point in curve], [point.ci_high for point in curve]
    x = [point.tokens for point in curve]
    axes.fill_between(x, low, high, color=colour, alpha=alpha, lw=0, zorder=1)


def token_axis(
    axes: Axes, limits: tuple[float, float], *, named: bool = True, most: int = 9
) -> None:
    """Set a log axis of lengths within ``limits``, with at most ``most`` labelled ticks."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(*limits)
    axes.minorticks_off()
    ticks = token_ticks(*limits, most)
    axes.set_xticks(ticks, [token_label(tick) if named else "" for tick in ticks])


def shifted(axes: Axes, x: float, pixels: float) -> float:
    """Return the length that is drawn ``pixels``, at `DPI`, to the right of length ``x``."""
    at = axes.transData.transform((x, 0))[0] + pixels * axes.figure.dpi / DPI
    return float(axes.transData.inverted().transform((at, 0))[0])


def token_limits(seen: Sequence[float]) -> tuple[float, float]:
    """Return the range of ``seen`` (positive), widened to a factor of at least two."""
    low, high = min(seen, default=100.0), max(seen, default=10_000.0)
    return (low, high) if high >= 2 * low else (low / 1.5, high * 1.5)


def with_air(low: float, high: float) -> tuple[float, float]:
    """Return the limits slightly widened, so that marks on the edge are fully visible."""
    air = (high / low) ** 0.03
    return low / air, high * air


def token_label(tokens: float) -> str:
    """Return the label of a tick: 256, 1k (1,024), 1.5k, 128k, 1M."""
    for unit, size in (("M", 1024**2), ("k", 1024)):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return f"{tokens:.0f}" if tokens >= 100 else f"{tokens:.3g}"


def token_ticks(low: float, high: float, most: int = 9) -> list[float]:
    """Return round lengths between ``low`` and ``high`` for a log axis: powers of two, thinned.

    Returns at most ``most``; a narrow range also gets halves (1.5 x 2^k), quarters and so on.
    """
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    powers = [2.0**e for e in range(first, last + 1)]
    if len(powers) >= 4:
        step = math.ceil(len(powers) / most)
        return powers[(len(powers) - 1) % step :: step]
    for parts in (2, 4, 8, 16, 32):
        fine = [2.0**e * (1 + i / parts) for e in range(first - 1, last + 1) for i in range(parts)]
        inside = [t for t in fine if low <= t <= high and (t >= parts or t == int(t))]
        if len(inside) >= 3:
            return inside[:: math.ceil(len(inside) / most)]
    return powers


def drawable(text: Any) -> str:
    """Return ``text`` on one line, with U+FFFD for characters that the bundled font lacks."""
    characters = _known_characters()
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return "".join(c if ord(c) in characters else "\ufffd" for c in line)


def shortened(text: Any, most: int) -> str:
    """Return drawable ``text`` of at most ``most`` characters, shortened in the middle."""
    line = drawable(text)
    if len(line) <= most:
        return line
    head = (most - 1) * 3 // 5
    return f"{line[:head]}…{line[len(line) - (most - 1 - head) :]}"


@cache
def _known_characters() -> frozenset[int]:
    from matplotlib import font_manager, get_data_path
    from matplotlib.ft2font import FT2Font

    bundled = f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    font_manager.fontManager  # noqa: B018 - loads the font list once, before any figure times it
    return frozenset(FT2Font(bundled).get_charmap())
