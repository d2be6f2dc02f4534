"""The report's picture: score and spread against natural length, one or more models on one axis.

Top to bottom: what the picture shows; one strip per model with its zones and its safe cap; the
score with single answers, bin means, intervals and the fitted curve; the standard deviation per
bin. Drawn with matplotlib's object interface (no pyplot, no global figure), as a server needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures import house, score_panel
from contextcliff_dagster.reporting.figures.captions import axis_words, captions, single_axis_words
from contextcliff_dagster.reporting.figures.zone_strip import draw_zone_strip
from contextcliff_dagster.reporting.wording.number_format import tokens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from contextcliff_dagster.contracts.results import Cliffs

_LEFT, _RIGHT = 0.92, 0.36
_HEAD, _ROW, _SCORE, _SPREAD, _GAP, _FOOT = 0.98, 0.62, 3.75, 1.15, 0.16, 1.30
_WINDOW_REACH = 0.22
"""The window is drawn to scale if that widens the (log) axis by no more than this share."""
_NAME: dict[str, Any] = {"fontsize": 10.5, "zorder": 5}
"""How the name of a line is written."""


@house.styled()
def plot_report(cliffs: Sequence[Cliffs], records: pd.DataFrame | None = None) -> bytes:
    """The picture as PNG bytes, 1,840 pixels wide; the height grows with the number of models.

    ``cliffs``: one result of the contract per model (lengths in document tokens, scores 0..1).
    ``records``: EVAL_RECORDS of any of these models for the single answers, or None. What a result
    lacks is left out of the picture. Same input, same bytes.
    """
    rows = max(len(cliffs), 1)
    figure = house.blank_page(_HEAD + rows * _ROW + _SCORE + _GAP + _SPREAD + _FOOT + 0.08)
    answers = [score_panel.answers_of(records, cliffs, row) for row in range(len(cliffs))]
    limits = _limits(cliffs, [x for x, _ in answers])
    bottoms = (_FOOT, _FOOT + _SPREAD + _GAP, _FOOT + _SPREAD + _GAP + _SCORE + 0.08)
    spread, main, strip = (
        house.panel(figure, _LEFT, bottom, house.WIDTH - _LEFT - _RIGHT, tall)
        for bottom, tall in zip(bottoms, (_SPREAD, _SCORE, rows * _ROW), strict=True)
    )
    for axes in (spread, main, strip):
        house.token_axis(axes, limits)
    main.set_ylim(*score_panel.score_limits(rows))
    main.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    main.grid(axis="y", zorder=0)
    hollow = False
    for row, result in enumerate(cliffs):
        score_panel.draw_answers(main, row, rows, *answers[row])
        score_panel.draw_curve(main, row, rows, result)
        hollow |= score_panel.draw_bins(main, row, rows, result)
    _spread_panel(spread, cliffs)
    _shade_zones((main, spread), cliffs, limits)
    _cap_lines((main, spread), cliffs, limits)
    _window_marks((main, spread), cliffs, limits)
    draw_zone_strip(strip, cliffs, limits)
    axis_words(main, spread, cliffs, limits)
    captions(figure, cliffs, has_answers=any(len(x) for x, _ in answers), hollow=hollow)
    return house.png_bytes(figure)


def draw_scores(axes: Axes, cliffs: Sequence[Cliffs], records: pd.DataFrame | None = None) -> None:
    """The score panel alone, in ``axes`` of the caller's: answers, bins, curves, caps, a title.

    Sets the axes' limits, ticks and labels; the rest as `plot_report`.
    """
    rows = max(len(cliffs), 1)
    answers = [score_panel.answers_of(records, cliffs, row) for row in range(len(cliffs))]
    limits = _limits(cliffs, [x for x, _ in answers])
    house.token_axis(axes, limits)
    axes.set_ylim(*score_panel.score_limits(rows))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.grid(axis="y", zorder=0)
    for row, result in enumerate(cliffs):
        score_panel.draw_answers(axes, row, rows, *answers[row])
        score_panel.draw_curve(axes, row, rows, result)
        score_panel.draw_bins(axes, row, rows, result)
    _shade_zones((axes,), cliffs, limits)
    _cap_lines((axes,), cliffs, limits)
    _window_marks((axes,), cliffs, limits)
    single_axis_words(axes, cliffs, limits)


def _shade_zones(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    """The zones of a single model behind its scores."""
    for zone in results[0].zones if len(results) == 1 else ():
        low, high = max(zone.from_tokens, limits[0]), min(zone.to_tokens, limits[1])
        if high > low:
            for axes in panels:
                axes.axvspan(low, high, color=house.ZONE_SHADE[zone.name], lw=0, zorder=0)


def _limits(results: Sequence[Cliffs], lengths: Sequence[Any]) -> tuple[float, float]:
    """The x range: everything scored, a window that is near, and a little air.

    Bins without a score (documents that overflow the window) would only squeeze the others.
    """
    seen = [float(v) for x in lengths if len(x) for v in (x.min(), x.max())]
    for result in results:
        scored = [b for b in result.bins if b.n != 0 or b.mean is not None]
        seen += [v for b in scored for v in (b.min_tokens, b.median_tokens, b.max_tokens) if v]
        seen += [p.tokens for p in result.curve]
        seen.append(result.safe_cap_tokens or 0.0)
    low, high = house.token_limits([v for v in seen if v > 0])
    for window in _windows(results):
        if high < window <= high * (high / low) ** _WINDOW_REACH:
            high = window
    return house.with_air(low, high)


def _windows(results: Sequence[Cliffs]) -> list[float]:
    return sorted({w for r in results if (w := r.window_tokens) and w > 0})


def _spread_panel(axes: Axes, results: Sequence[Cliffs]) -> None:
    axes.set_ylim(0, 0.56)
    axes.set_yticks([0, 0.25, 0.5])
    axes.grid(axis="y")
    for row, result in enumerate(results):
        style = house.look(row)
        points = [
            (score_panel.dodge(axes, place, row, len(results)), sd)
            for b in result.bins
            if (place := b.median_tokens) and (sd := b.sd) is not None
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=style.colour, lw=1.6, ls=style.dash, zorder=2, clip_on=False)
            marks: dict[str, Any] = {"marker": style.marker, "ms": 6, "mew": 0.8, "zorder": 3}
            house.draw_markers(axes, x, y, style.colour, **marks, clip_on=False)


def _cap_lines(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    main = panels[0]
    placed: list[float] = []
    bold: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "bottom", "fontweight": "bold"}
    for row, result in enumerate(results):
        cap = result.safe_cap_tokens
        if cap is None or not limits[0] <= cap <= limits[1]:
            continue
        style = house.look(row)
        for axes in panels:
            axes.axvline(cap, color=style.colour, lw=1.5, ls=style.dash, zorder=1.8, alpha=0.9)
        at = main.transData.transform((cap, 0))[0]
        if any(abs(at - other) < 34 for other in placed):
            continue  # the strip above names it
        words, x = f"safe cap {tokens(cap)}", house.shifted(main, cap, -5)
        label = main.text(x, 0, words, color=style.colour, **bold, **_NAME)
        extent, frame = label.get_window_extent(), main.get_window_extent()
        low, high = main.get_ylim()
        need = extent.height / frame.height * (high - low)
        left = house.shifted(main, cap, -8 - extent.width)
        room = score_panel.free_height(main, results, left, cap, need)
        if room is None or extent.x0 < frame.x0:
            label.remove()
            continue
        label.set_y(room)
        placed.append(at)


def _window_marks(
    panels: Sequence[Axes], results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    main, windows = panels[0], _windows(results)
    far = [w for w in windows if w > limits[1]]
    y, end = (0.02, "bottom") if far else (0.98, "top")
    for window in windows:
        if limits[0] <= window <= limits[1]:
            for axes in panels:
                axes.axvline(window, color=house.INK, lw=2.2, zorder=1.8)
            right = main.transData.transform((window, 0))[0] + 34 < main.get_window_extent().x1
            x, side = house.shifted(main, window, 7 if right else -7), "left" if right else "right"
            main.text(x, y, f"window {tokens(window)}", rotation=90, ha=side, va=end, **_NAME)
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
            annotation_clip=False,
            zorder=6,
            arrowprops={
                "arrowstyle": "-|>",
                "color": house.INK,
                "lw": 1.6,
                "shrinkA": 2,
                "shrinkB": 0,
                "mutation_scale": 14,
            },
            bbox={"boxstyle": "square,pad=0.2", "fc": (1, 1, 1, 0.85), "ec": "none"},
        )
