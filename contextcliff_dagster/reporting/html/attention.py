"""Attention over length in report.html: figures that need no script; with one, they have hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures.attention import Panel, Point, Series, attention_panels
from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.html.picture import LEFT, RIGHT, WIDTH, Plane, chip, look
from contextcliff_dagster.reporting.wording.number_format import estimate, level, tokens
from contextcliff_dagster.reporting.wording.sentences import attention_sentences, labels

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

SCRIPT = "attention.js"
"""Of ``assets``: hints and arrow keys for the figures."""
_HEIGHT, _TOP = 312.0, 26.0
_FOOT = _HEIGHT - 52


def attention_html(results: Sequence[Cliffs]) -> str:
    """The section with two figures for each model that has attention; empty without any."""
    shown = [
        (name, result, panels)
        for name, result in zip(labels(results), results, strict=True)
        if (panels := attention_panels(result))
    ]
    if not shown:
        return ""
    parts = ['<section id="attention"><h2>Attention over document length</h2>\n']
    for name, result, panels in shown:
        if len(results) > 1:
            parts.append(f"<h3>{text(name)}</h3>\n")
        parts += [_figure(panel, f"{name}: ") for panel in panels]
        if result.attention is not None:
            items = [f"<li>{text(s)}</li>" for s in attention_sentences(result.attention)]
            parts.append(f"<ul>{''.join(items)}</ul>\n")
    bars = level(shown[0][1].confidence)
    parts.append(
        f'<p class="soft">Of the last prompt token, means over heads and layers; bars are {bars} '
        "intervals, bands reach from the lowest layer to the highest. Verdict and cap rest on the "
        "scores alone.</p>\n</section>\n"
    )
    return "".join(parts)


def _figure(panel: Panel, name: str) -> str:
    keys = "With scripts, the arrow keys move between bins."
    label = f"{name}{panel.title}, over document length. {keys}"
    return (
        f'<p class="facts"><strong>{text(panel.title)}</strong> {_keys(panel)}</p>\n'
        f'<figure class="attention"><svg viewBox="0 0 {WIDTH:g} {_HEIGHT:g}" role="group" '
        f'aria-label="{text(label)}">{_drawing(panel)}</svg>'
        '<div class="hint" hidden></div></figure>\n'
    )


def _keys(panel: Panel) -> str:
    """Marks and names of the series; not in the figure, whose texts shrink on narrow screens."""
    return " ".join(f"<span>{chip(one.look)} {text(one.name)}</span>" for one in panel.series)


def _drawing(panel: Panel) -> str:
    seen = [float(point.tokens) for series in panel.series for point in series.points]
    plane = Plane(seen, _HEIGHT, _TOP, _FOOT)
    x = plane.x
    parts = [plane.grid()]
    if panel.cap is not None and plane.low <= panel.cap <= plane.high:
        at, words = x(panel.cap), f"cap {tokens(panel.cap)}"
        half = 3.6 * len(words)
        middle = min(max(at, LEFT + half), RIGHT - half)
        parts.append(f'<g class="m4"><path class="cap" d="M{at:.1f} {_FOOT + 4:g}V{_TOP - 2:g}"/>')
        parts.append(
            f'<text class="name" x="{middle:.1f}" y="{_TOP - 5:g}" text-anchor="middle">{words}'
            "</text></g>"
        )
    for row, series in enumerate(panel.series):
        own = look(series.look)
        parts.append(f'<g class="{own.style}">')
        parts.append(plane.band(series.band))
        parts.append(plane.curve([(p.tokens, p.mean) for p in series.points], own.dash))
        for place, point in enumerate(series.points):
            left, top = x(point.tokens), plane.y(point.mean)
            words = text(_words(series, point))
            drawn = plane.mark(own, left, point.mean, (point.low, point.high))
            parts.append(
                f'<g class="bin" role="img" tabindex="-1" aria-label="{words}" '
                f'data-row="{row}" data-place="{place}" data-left="{left:.1f}" '
                f'data-top="{top:.1f}"><circle class="halo" cx="{left:.1f}" cy="{top:.1f}" '
                f'r="13"/>{drawn}</g>'
            )
        parts.append("</g>")
    return "".join(parts)


def _words(series: Series, point: Point) -> str:
    name = series.name.partition(",")[0]
    mean = f"{point.mean:.2f}" if point.low is None else estimate(point.mean, point.low, point.high)
    words = f"{name} {mean}, n = {point.n:,}"
    layers = [f"{least:.2f} to {most:.2f}" for at, least, most in series.band if at == point.tokens]
    parts = [f"bin {point.bin}, median {tokens(point.tokens)} tokens", words]
    return "; ".join([*parts, *(f"layers {one}" for one in layers)])
