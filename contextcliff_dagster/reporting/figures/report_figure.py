"""The report's picture: score and spread against natural length, one or more models on one axis.

Top to bottom: what the picture shows; one strip per model with its zones and its safe cap; the
score with single answers, bin means, intervals and the fitted curve; the standard deviation per
bin. Drawn with matplotlib's object interface (no pyplot, no global figure), as a server needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures import score_panel
from contextcliff_dagster.reporting.figures.captions import axis_words, captions
from contextcliff_dagster.reporting.figures.style import (
    DPI,
    FAINT,
    INK,
    ZONE_SHADE,
    house_style,
    look,
    png_bytes,
    token_axis,
    token_limits,
    with_air,
)
from contextcliff_dagster.reporting.figures.zone_strip import draw_zone_strip
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.contracts.results import Cliffs

_WIDTH, _LEFT, _RIGHT = 11.5, 0.92, 0.36
_HEAD, _ROW, _SCORE, _SPREAD, _GAP, _FOOT = 0.98, 0.62, 3.75, 1.15, 0.16, 1.30
_WINDOW_REACH = 0.22
"""The window is drawn to scale if that widens the (log) axis by no more than this share."""


def plot_report(cliffs: Sequence[Cliffs], records: pd.DataFrame | None = None) -> bytes:
    """The picture as PNG bytes, 1,840 pixels wide; the height grows with the number of models.

    ``cliffs``: one result of the contract per model (lengths in document tokens, scores 0..1).
    ``records``: EVAL_RECORDS of any of these models for the single answers, or None. What a result
    lacks is left out of the picture. Same input, same bytes.
    """
    with house_style():
        return png_bytes(_figure(list(cliffs), records))


def _figure(results: list[Cliffs], records: pd.DataFrame | None) -> Figure:
    from matplotlib.figure import Figure

    rows = max(len(results), 1)
    height = _HEAD + rows * _ROW + _SCORE + _GAP + _SPREAD + _FOOT + 0.08
    figure = Figure(figsize=(_WIDTH, height), dpi=DPI, facecolor="white")
    answers = [score_panel.answers_of(records, results, row) for row in range(len(results))]
    limits = _limits(results, [x for x, _ in answers])

    def panel(bottom: float, tall: float) -> Axes:
        box = (_LEFT / _WIDTH, bottom / height, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, tall / height)
        axes = figure.add_axes(box)
        token_axis(axes, limits)
        return axes

    spread = panel(_FOOT, _SPREAD)
    main = panel(_FOOT + _SPREAD + _GAP, _SCORE)
    strip = panel(_FOOT + _SPREAD + _GAP + _SCORE + 0.08, rows * _ROW)

    main.set_ylim(*score_panel.score_limits(rows))
    score_panel.draw_frame(main)
    hollow = False
    for row, result in enumerate(results):
        score_panel.draw_answers(main, row, rows, *answers[row])
        score_panel.draw_curve(main, row, rows, result)
        hollow |= score_panel.draw_bins(main, row, rows, result)
    _spread_panel(spread, results)
    if len(results) == 1:
        _shade_zones((main, spread), results[0], limits)
    _cap_lines((main, spread), results, limits)
    _window_marks((main, spread), results, limits)
    draw_zone_strip(strip, results, limits)
    axis_words(main, spread, results, limits)
    captions(figure, results, height, has_answers=any(len(x) for x, _ in answers), hollow=hollow)
    return figure


def _limits(results: Sequence[Cliffs], lengths: Sequence[Any]) -> tuple[float, float]:
    """The x range: everything scored, a window that is near, and a little air.

    Bins without a score (documents that overflow the window) would only squeeze the others.
    """
    seen = [float(v) for x in lengths if len(x) for v in (x.min(), x.max())]
    for result in results:
        seen += [
            v
            for b in result.bins
            if b.n != 0 or b.mean is not None
            for v in (b.min_tokens, b.median_tokens, b.max_tokens)
            if v
        ]
        seen += [p.tokens for p in result.curve]
        seen.append(result.safe_cap_tokens or 0.0)
    low, high = token_limits([v for v in seen if v > 0])
    for window in _windows(results):
        if high < window <= high * (high / low) ** _WINDOW_REACH:
            high = window
    return with_air(low, high)


def _windows(results: Sequence[Cliffs]) -> list[float]:
    return sorted({w for r in results if (w := r.window_tokens) and w > 0})


def _spread_panel(axes: Axes, results: Sequence[Cliffs]) -> None:
    axes.set_ylim(0, 0.56)
    axes.set_yticks([0, 0.25, 0.5])
    axes.grid(axis="y", color=FAINT, lw=0.7)
    for row, result in enumerate(results):
        style = look(row)
        points = [
            (score_panel.dodge(axes, place, row, len(results)), sd)
            for b in result.bins
            if (place := b.median_tokens) and (sd := b.sd) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=style.colour, lw=1.6, ls=style.dash, zorder=2, clip_on=False)
            axes.plot(
                x,
                y,
                ls="none",
                marker=style.marker,
                ms=6,
                mfc=style.colour,
                mec="white",
                mew=0.8,
                zorder=3,
                clip_on=False,
            )


def _shade_zones(panels: Sequence[Axes], result: Cliffs, limits: tuple[float, float]) -> None:
    for zone in result.zones:
        low = max(zone.from_tokens, limits[0])
        high = min(zone.to_tokens, limits[1])
        if high > low:
            for axes in panels:
                axes.axvspan(low, high, color=ZONE_SHADE[zone.name], lw=0, zorder=0)


def _cap_lines(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    main = panels[0]
    placed: list[float] = []
    for row, result in enumerate(results):
        cap = result.safe_cap_tokens
        if cap is None or not limits[0] <= cap <= limits[1]:
            continue
        style = look(row)
        for axes in panels:
            axes.axvline(cap, color=style.colour, lw=1.5, ls=style.dash, zorder=1.8, alpha=0.9)
        at = main.transData.transform((cap, 0))[0]
        if any(abs(at - other) < 34 for other in placed):
            continue  # the strip above names it
        label = main.text(
            _beside(main, cap, -5),
            0,
            f"safe cap {tokens(cap)}",
            rotation=90,
            ha="right",
            va="bottom",
            fontsize=10.5,
            color=style.colour,
            fontweight="bold",
            zorder=5,
        )
        extent = label.get_window_extent()
        need = (
            extent.height
            / main.get_window_extent().height
            * (main.get_ylim()[1] - main.get_ylim()[0])
        )
        room = score_panel.free_height(
            main, results, _beside(main, cap, -8 - extent.width), cap, need
        )
        if room is None or extent.x0 < main.get_window_extent().x0:
            label.remove()
            continue
        label.set_y(room)
        placed.append(at)


def _beside(axes: Axes, x: float, pixels: float) -> float:
    """The length ``pixels`` to the right of length ``x``."""
    at = axes.transData.transform((x, 0))[0]
    return float(axes.transData.inverted().transform((at + pixels, 0))[0])


def _window_marks(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    windows = _windows(results)
    main = panels[0]
    far = [w for w in windows if w > limits[1]]
    for window in windows:
        if limits[0] <= window <= limits[1]:
            for axes in panels:
                axes.axvline(window, color=INK, lw=2.2, zorder=1.8)
            right = main.transData.transform((window, 0))[0] + 34 < main.get_window_extent().x1
            x, side = (
                (_beside(main, window, 7), "left")
                if right
                else (_beside(main, window, -7), "right")
            )
            y, end = (0.02, "bottom") if far else (0.98, "top")
            main.text(
                x,
                y,
                f"window {tokens(window)}",
                rotation=90,
                ha=side,
                va=end,
                fontsize=10.5,
                color=INK,
                zorder=5,
            )
    for place, window in enumerate(far):
        main.annotate(
            f"window {tokens(window)}",
            xy=(1.022, 0.80 - 0.075 * place),
            xytext=(0.985, 0.80 - 0.075 * place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            ha="right",
            va="center",
            fontsize=10.5,
            color=INK,
            annotation_clip=False,
            zorder=6,
            arrowprops={
                "arrowstyle": "-|>",
                "color": INK,
                "lw": 1.6,
                "shrinkA": 2,
                "shrinkB": 0,
                "mutation_scale": 14,
            },
            bbox={"boxstyle": "square,pad=0.2", "fc": (1, 1, 1, 0.85), "ec": "none"},
        )
