"""The HTML report's pictures as SVG that needs no script, and placeholders that scripts fill.

Three pictures: score over length, the difference of two measurements over length, and attention
over length, which gets hints if scripts run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from contextcliff_dagster.contracts.results import Cliffs, Comparison
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.figures.attention import Panel, Point, Series, attention_panels
from contextcliff_dagster.reporting.html.render import text

LOOKS = 6
"""Number of colours, markers and line styles in ``assets``; further models reuse them shifted."""
WIDTH, HEIGHT = 900.0, 360.0
LEFT, RIGHT, TOP, FOOT = 40.0, WIDTH - 12, 26.0, HEIGHT - 46
_MARKS = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M-4.5 -4.5h9v9h-9z",
    "M0 -5.6L5.4 4.2H-5.4z",
    "M0 -6L6 0L0 6L-6 0z",
    "M0 5.6L5.4 -4.2H-5.4z",
    "M-2 -5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z",
)
_DASHES = ("", "7 3", "9 3 2 3", "2 3", "12 4", "5 2 2 2 2 2")


class Look(NamedTuple):
    """Appearance of one model: CSS class of its colour, SVG path of its mark, dash pattern."""

    style: str
    mark: str
    dash: str


def look(row: int) -> Look:
    """Return the look of the model at index ``row``, like ``look`` in ``assets/marks.js``."""
    lap, place = divmod(row, LOOKS)
    return Look(f"m{place}", _MARKS[(place + lap) % LOOKS], _DASHES[(place + 2 * lap) % LOOKS])


def chip(row: int) -> str:
    """Return a model's mark in its colour, for use in a line of text."""
    appearance = look(row)
    return (
        f'<svg class="chip {appearance.style}" viewBox="-8 -8 16 16" aria-hidden="true">'
        f'<path d="{appearance.mark}"/></svg>'
    )


class Plane:
    """The coordinates of a figure: lengths on a log scale, values on a linear one.

    Args:
        seen: positive lengths that the figure must contain.
        height: height of the figure; ``top`` and ``foot``: y of the largest and smallest value.
        sides: x of the left and right end of the length axis.
        axis: what the lengths are, with their unit.
        most: values run from -most to most; 0: from 0 to 1.
    """

    def __init__(
        self,
        seen: Sequence[float],
        height: float = HEIGHT,
        top: float = TOP,
        foot: float = FOOT,
        *,
        sides: tuple[float, float] = (LEFT, RIGHT),
        axis: str = "document length in tokens",
        most: float = 0.0,
    ) -> None:
        self._axis, self._most = axis, most
        self._left, self._right = sides
        self.low, self.high = house.with_air(*house.token_limits(seen))
        self._height, self._top, self._foot = height, top, foot

    def x(self, tokens: float) -> float:
        share = log(max(tokens, 1e-9) / self.low) / log(self.high / self.low)
        return self._left + share * (self._right - self._left)

    def y(self, value: float) -> float:
        share = (value / self._most + 1) / 2 if self._most else value
        return self._foot - share * (self._foot - self._top)

    def grid(self) -> str:
        """Return the grid lines and labels of both axes."""
        parts = []
        for value, number in self._marks():
            at = self.y(value)
            parts.append(f'<path d="M{self._left:g} {at:g}H{self._right:g}"/>')
            parts.append(_label(f"{self._left - 8:g}", at + 4, "end", number))
        for length in house.token_ticks(self.low, self.high):
            tick = f"{self.x(length):.1f}"
            parts.append(f'<path d="M{tick} {self._foot + 4:g}v5"/>')
            parts.append(_label(tick, self._foot + 23, "middle", house.token_label(length)))
        axis = f"{self._axis}, log scale"
        parts.append(_label(f"{self._right:g}", self._height - 4, "end", axis))
        return f'<g class="grid" aria-hidden="true">{"".join(parts)}</g>'

    def _marks(self) -> list[tuple[float, str]]:
        if not self._most:
            return [(share, f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1)]
        step = next(size for size in (0.05, 0.1, 0.25, 0.5, 1.0) if self._most / size < 5)
        values = [k * step for k in range(-4, 5) if abs(k * step) <= self._most]
        return [(v, f"{v:+.2g}".replace("0.", ".") if v else "0") for v in values]

    def band(self, limits: Sequence[tuple[float, float, float]]) -> str:
        """Return the area between lower and upper limit; ``limits``: (length, low, high)."""
        up = [f"{self.x(at):.1f} {self.y(high):.1f}" for at, _, high in limits]
        down = [f"{self.x(at):.1f} {self.y(low):.1f}" for at, low, _ in reversed(limits)]
        return f'<path class="band" d="M{"L".join([*up, *down])}z"/>' if len(up) > 1 else ""

    def curve(self, points: Sequence[tuple[float, float]], dash: str = "") -> str:
        """Return a line through ``points``, each a length and a value."""
        line = "L".join(f"{self.x(at):.1f} {self.y(value):.1f}" for at, value in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return f'<path class="curve" d="M{line}"{dashes}/>' if len(points) > 1 else ""

    def mark(
        self, style: Look, at: float, value: float, interval: tuple[float | None, float | None]
    ) -> str:
        """Return the mark of a value at x = ``at`` (pixels), with its interval if bounded."""
        (low, high), ends = interval, ""
        if low is not None and high is not None:
            span = f"M{at:.1f} {self.y(low):.1f}V{self.y(high):.1f}"
            ends = f'<path class="interval" d="{span}"/>'
        place = f"translate({at:.1f} {self.y(value):.1f})"
        return f'{ends}<path class="mark" d="{style.mark}" transform="{place}"/>'


def _label(x: str, y: float, anchor: str, words: str) -> str:
    return f'<text x="{x}" y="{y:g}" text-anchor="{anchor}">{words}</text>'


def picture_html(results: Sequence[Cliffs]) -> str:
    """Return the picture of all results, with placeholders for switches, hint and open bin."""
    scores = " and ".join(dict.fromkeys(map(wording.score_name, results)))
    bars = wording.level(results[0].confidence) if results else "unstated"
    note = (
        f"{scores[:1].upper()}{scores[1:]} over length; bars are {bars} intervals, and the band is "
        "the fitted curve's; it widens where examples end."
    )
    compared = f"<p>{text(words)}</p>\n" if (words := wording.comparison(results)) else ""
    label = "Score over length. With scripts, the arrow keys move between bins and Enter opens one."
    return (
        '<section id="picture"><h2>Score over length</h2>\n'
        '<details id="switches" hidden><summary>Change the picture</summary></details>\n'
        f'<figure id="chart"><svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="group" '
        f'aria-label="{label}">{drawing(results)}</svg>'
        '<div id="hint" class="hint" hidden></div></figure>\n'
        f'<p id="note" aria-live="polite">{text(note)}</p>\n'
        '<section id="bin" aria-label="Open bin" hidden></section>\n'
        f"{compared}</section>\n"
    )


def drawing(results: Sequence[Cliffs], axis: str = "") -> str:
    """Return the picture's static SVG: curves, bands, caps and bins; ``axis``: of the lengths."""
    lengths = [p.tokens for r in results for p in r.curve]
    lengths += [b.median_tokens for r in results for b in r.bins if b.median_tokens]
    plane = Plane([at for at in lengths if at > 0], axis=axis or wording.length_axis(results))
    x = plane.x
    parts = [plane.grid()]
    gap = min(7.0, 24 / max(len(results), 1))
    caps = [cap for result in results if (cap := result.safe_cap_tokens)]
    spans_used = [(x(cap) - 1, x(cap) + 1) for cap in caps]
    for row, result in enumerate(results):
        appearance, shift = look(row), (row - (len(results) - 1) / 2) * gap
        parts.append(f'<g class="{appearance.style}">')
        parts.append(plane.band([(p.tokens, p.ci_low, p.ci_high) for p in result.curve]))
        parts.append(plane.curve([(p.tokens, p.mean) for p in result.curve], appearance.dash))
        if (cap := result.safe_cap_tokens) and plane.low <= cap <= plane.high:
            parts.append(f'<path class="cap" d="M{x(cap):.1f} {FOOT + 4:g}V{TOP - 14:g}"/>')
            words = f"cap {cap:,}"
            wide = 10 + 7 * len(words)
            spans = (x(cap) + 2, x(cap) + wide), (x(cap) - wide, x(cap) - 2)
            equal = any(cap == other.safe_cap_tokens for other in results[:row])
            for left, right in () if equal else spans:  # as in `assets/chart.js`
                if right > RIGHT + 8 or any(a < right and left < b for a, b in spans_used):
                    continue
                spans_used.append((left, right))
                side = (x(cap) - 5, "end") if left < x(cap) else (x(cap) + 5, "start")
                place = f'x="{side[0]:.1f}" y="{TOP - 6:g}" text-anchor="{side[1]}"'
                parts.append(f'<text class="name" {place}>{words}</text>')
                break
        for b in result.bins:
            if not b.median_tokens or b.mean is None:
                continue
            at = x(b.median_tokens) + shift
            parts.append(plane.mark(appearance, at, b.mean, (b.ci_low, b.ci_high)))
        parts.append("</g>")
    return "".join(parts)


def difference_html(comparison: Comparison) -> str:
    """Return the picture of B minus A: smoothed difference with band, and bins with intervals."""
    bins = [b for b in comparison.bins if b.difference is not None]
    edges = [float(max(edge, 1)) for b in comparison.bins for edge in (b.edge_low, b.edge_high)]
    ends = [0.1, *(end for p in comparison.curve for end in (p.ci_low, p.ci_high))]
    ends += [end for b in bins for end in (b.ci_low, b.ci_high, b.difference) if end is not None]
    plane, appearance = Plane(edges, most=max(map(abs, ends)) * 1.05), look(1)
    parts = [plane.grid(), f'<g class="{appearance.style}">']
    parts.append(plane.band([(p.tokens, p.ci_low, p.ci_high) for p in comparison.curve]))
    parts.append(plane.curve([(p.tokens, p.difference) for p in comparison.curve]))
    for b in bins:
        at = plane.x((max(b.edge_low, 1) * b.edge_high) ** 0.5)
        words = f"{b.bin}: {b.edge_low:,} to {b.edge_high:,} tokens, B minus A {b.difference:+.2f}"
        if b.ci_low is not None and b.ci_high is not None:
            words += f" [{b.ci_low:+.2f}, {b.ci_high:+.2f}]"
        mark = plane.mark(appearance, at, b.difference or 0.0, (b.ci_low, b.ci_high))
        sure = b.p_value is not None and b.p_value <= 1.0 - comparison.confidence
        kind = "" if sure else ' class="bare"'
        parts.append(f"<g{kind}><title>{text(words)}</title>{mark}</g>")
    how = "the same examples" if comparison.paired else "different documents"
    note = (
        f"Mean score of B minus that of A, on {how}. Band: for all lengths at once. Filled: "
        "significant among all bins together."
    )
    return (
        "<section><h2>Difference over document length</h2>\n<figure>"
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{text(note)}">'
        f"{''.join(parts)}</g></svg></figure>\n<p>{text(note)}</p></section>\n"
    )


SCRIPT = "attention.js"
"""Script in ``assets`` that adds hints and arrow keys to the figures."""
_HEIGHT, _TOP = 312.0, 26.0
_FOOT = _HEIGHT - 52


def attention_html(results: Sequence[Cliffs]) -> str:
    """Return the attention section, two figures for each model; empty if none was measured."""
    models = [
        (name, result, panels)
        for name, result in zip(wording.labels(results), results, strict=True)
        if (panels := attention_panels(result))
    ]
    if not models:
        return ""
    parts = ['<section id="attention"><h2>Attention over document length</h2>\n']
    for name, result, panels in models:
        if len(results) > 1:
            parts.append(f"<h3>{text(name)}</h3>\n")
        parts += [_figure(panel, f"{name}: ") for panel in panels]
        if result.attention is not None:
            items = [f"<li>{text(s)}</li>" for s in wording.attention_sentences(result.attention)]
            parts.append(f"<ul>{''.join(items)}</ul>\n")
    bars = wording.level(models[0][1].confidence)
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
    """Return the legend as HTML beside the figure, whose text shrinks on narrow screens."""
    return " ".join(f"<span>{chip(line.look)} {text(line.name)}</span>" for line in panel.series)


def _drawing(panel: Panel) -> str:
    lengths = [float(point.tokens) for series in panel.series for point in series.points]
    plane = Plane(lengths, _HEIGHT, _TOP, _FOOT)
    x = plane.x
    parts = [plane.grid()]
    if panel.cap is not None and plane.low <= panel.cap <= plane.high:
        at, words = x(panel.cap), f"cap {wording.tokens(panel.cap)}"
        half = 3.6 * len(words)
        middle = min(max(at, LEFT + half), RIGHT - half)
        parts.append(f'<g class="m4"><path class="cap" d="M{at:.1f} {_FOOT + 4:g}V{_TOP - 2:g}"/>')
        parts.append(
            f'<text class="name" x="{middle:.1f}" y="{_TOP - 5:g}" text-anchor="middle">{words}'
            "</text></g>"
        )
    for row, series in enumerate(panel.series):
        appearance = look(series.look)
        parts.append(f'<g class="{appearance.style}">')
        parts.append(plane.band(series.band))
        parts.append(plane.curve([(p.tokens, p.mean) for p in series.points], appearance.dash))
        for place, point in enumerate(series.points):
            left, top = x(point.tokens), plane.y(point.mean)
            words = text(_words(series, point))
            mark = plane.mark(appearance, left, point.mean, (point.low, point.high))
            parts.append(
                f'<g class="bin" role="img" tabindex="-1" aria-label="{words}" '
                f'data-row="{row}" data-place="{place}" data-left="{left:.1f}" '
                f'data-top="{top:.1f}"><circle class="halo" cx="{left:.1f}" cy="{top:.1f}" '
                f'r="13"/>{mark}</g>'
            )
        parts.append("</g>")
    return "".join(parts)


def _words(series: Series, point: Point) -> str:
    name = series.name.partition(",")[0]
    mean = f"{point.mean:.2f}"
    if point.low is not None:
        mean = wording.estimate(point.mean, point.low, point.high)
    words = f"{name} {mean}, n = {point.n:,}"
    layers = [f"{low:.2f} to {high:.2f}" for at, low, high in series.band if at == point.tokens]
    parts = [f"bin {point.bin}, median {wording.tokens(point.tokens)} tokens", words]
    return "; ".join([*parts, *(f"layers {layer}" for layer in layers)])
