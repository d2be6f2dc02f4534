"""House style of all pictures: models, zones, token ticks, text; and the many-models picture.

Colours are distinct with any colour vision (after Okabe and Ito's set, darkened). Because reports
are also printed in grey, marker and line style differ too, and zones differ in lightness.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.reporting.wording import labels, measured_range, score_name, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    from contextcliff_dagster.contracts.results import Cliffs

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
                "svg.hashsalt": "contextcliff",
            }
        )
        yield


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


def blank_page(height: float) -> Figure:
    """Return a white figure of the standard width, ``height`` inches tall."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
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
    """Return the length that is drawn ``pixels`` to the right of length ``x``."""
    at = axes.transData.transform((x, 0))[0]
    return float(axes.transData.inverted().transform((at + pixels, 0))[0])


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


MOST_PANELS = 96
"""Maximum number of models drawn; with more, the panels would be too small to read."""
_LEFT, _GAP, _HEAD, _FOOT, _NAME = 0.62, 0.22, 0.78, 0.62, 0.44
_TALL = 0.98


@styled()
def plot_small_multiples(cliffs: Sequence[Cliffs]) -> bytes:
    """Return PNG bytes, 1,840 pixels wide and at most 4,000 tall: one panel per model, in order.

    All panels have the same axes: score 0..1 over log length. A panel shows the bins with their
    intervals, the fitted curve with its band, and the safe cap as a line.
    """
    shown = cliffs[:MOST_PANELS]
    columns = 4 if len(shown) <= 24 else 5 if len(shown) <= 60 else 6
    rows = max(1, math.ceil(len(shown) / columns))
    pitch = _NAME + _TALL
    height = _HEAD + rows * pitch + _FOOT
    figure = blank_page(height)
    wide = (WIDTH - _LEFT - 0.3 - (columns - 1) * _GAP) / columns
    ranges = [span for result in shown if (span := measured_range(result))]
    limits = with_air(*token_limits([float(max(end, 1)) for ends in ranges for end in ends]))
    for place, (name, result) in enumerate(zip(labels(cliffs), shown, strict=False)):
        row, column = divmod(place, columns)
        left = _LEFT + column * (wide + _GAP)
        bottom = height - _HEAD - (row + 1) * pitch + 0.06
        axes = panel(figure, left, bottom, wide, _TALL)
        below = place + columns >= len(shown)
        token_axis(axes, limits, named=below, most=4)
        axes.set_ylim(-0.04, 1.06)
        axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"] if column == 0 else [""] * 3)
        axes.tick_params(length=2, labelsize=8.5)
        axes.grid(axis="y")
        _draw(axes, result, limits)
        top = bottom + _TALL
        write(figure, left, top + 0.25, shortened(name, int(wide * 12.5)), fontsize=9.5)
        cap = result.safe_cap_tokens
        words = "no safe cap" if cap is None else f"safe cap {tokens(cap)}"
        write(figure, left, top + 0.1, words, fontsize=8.5, color=SOFT_INK)
    number = f"the first {len(shown)} of {len(cliffs)}" if len(shown) < len(cliffs) else len(cliffs)
    kinds = {score_name(result) for result in cliffs}
    measure = kinds.pop() if len(kinds) == 1 else "score"
    write(figure, 0.37, height - 0.27, f"{number} models", fontsize=13, fontweight="bold")
    words = "bins with 95% intervals, fitted curve with its band, line: safe cap"
    if len({result.confidence for result in cliffs}) > 1 or (
        cliffs and cliffs[0].confidence != 0.95
    ):
        words = words.replace("95% ", "")
    write(figure, 0.37, height - 0.52, f"Mean {measure} over length: {words}", color=SOFT_INK)
    write(figure, 0.37, 0.2, "Tokens of the document (log scale)", fontsize=10)
    return png_bytes(figure, 64)


def _draw(axes: Axes, result: Cliffs, limits: tuple[float, float]) -> None:
    colour, curve = look(0).colour, result.curve
    for zone in result.zones:
        low, high = max(zone.from_tokens, limits[0]), min(zone.to_tokens, limits[1])
        if high > low:
            axes.axvspan(low, high, color=ZONE_SHADE[zone.name], lw=0, zorder=0)
    if len(curve) > 1:
        draw_band(axes, curve, colour, 0.16)
        axes.plot([p.tokens for p in curve], [p.mean for p in curve], color=colour, lw=1.3)
    bins = [b for b in result.bins if b.median_tokens and b.mean is not None]
    bounded = [b for b in bins if b.ci_low is not None and b.ci_high is not None]
    axes.vlines(
        [b.median_tokens or 0 for b in bounded],
        [b.ci_low or 0.0 for b in bounded],
        [b.ci_high or 0.0 for b in bounded],
        color=colour,
        lw=0.9,
        zorder=2,
    )
    draw_markers(
        axes, [b.median_tokens for b in bins], [b.mean for b in bins], colour, ms=3.6, mew=0.5
    )
    if result.safe_cap_tokens is not None:
        axes.axvline(result.safe_cap_tokens, color=INK, lw=1.3, zorder=3)
