"""Interactive chart of many metrics over context size, with one line per arm or run.

A page has at most one chart; ``assets/metric_panel.js`` draws its panels. It is hidden without
scripts and in print, so a static picture of the same figures belongs in a fold of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.reporting.html.render import DRAWING, Interactive, text
from contextcliff_dagster.reporting.markdown import one_line

_DIGITS = 4
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a panel. ``inverted``: whether lower is worse, so that its axis begins inverted;
    ``labels``: names of the values 0, 1, ... of an ordinal metric.
    """

    key: str
    name: str
    inverted: bool = False
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A line's metric at one context size.

    Attributes:
        mean: the mean; None if it was not measured.
        interval: interval of the mean, or None.
        count: basis of the mean, in words: ``80 continuations of 8 passages``.
        rounds: means of single rounds; empty if unknown.
    """

    mean: float | None
    interval: Interval | None = None
    count: str = ""
    rounds: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class Author:
    """The author's own figures, a horizontal line in each panel.

    Attributes:
        figures: metric -> figure, with the ends of its band or None.
        line: index of the line it belongs to; None: all lines.
    """

    figures: Mapping[str, tuple[float, Interval | None]]
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """An arm or a run. ``about``: short statements on how it was made, shown in the hint.

    ``points``: metric -> one point for each of ``sizes`` (tokens, ascending).
    """

    name: str
    sizes: Sequence[int]
    points: Mapping[str, Sequence[Point]]
    about: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class MetricChart:
    """A chart: its metrics, lines and authors, and the text around them.

    Attributes:
        title: title of the section.
        kind: what a line is, ``arm`` or ``run``.
        bars, band: one sentence on the bars, one on the author's line with its band.
        first: keys of the metrics in the first four panels.
    """

    title: str
    kind: str
    metrics: Sequence[Metric]
    lines: Sequence[Line]
    authors: Sequence[Author] = ()
    bars: str = ""
    band: str = ""
    first: Sequence[str] = ()


def metric_chart_html(chart: MetricChart) -> str:
    """Return the HTML section of ``chart``, which stays hidden until scripts fill it."""
    words = " ".join(filter(None, [chart.bars, chart.band]))
    return (
        f'<section id="picture" hidden><h2>{text(chart.title)}</h2>\n'
        '<details id="switches" hidden><summary>Change the picture</summary></details>\n'
        '<div id="panels"></div>\n'
        '<template id="figure"><figure><svg role="group"></svg><div class="hint" hidden></div>'
        "</figure></template>\n"
        f'<p id="note">{text(words)}</p>\n'
        '<p id="shown" class="unseen" aria-live="polite"></p>\n</section>\n'
    )


def metric_chart_interactive(chart: MetricChart) -> Interactive:
    """Return the data, scripts and style of ``chart``; numbers have four significant digits."""
    payload = {
        "kind": chart.kind,
        "first": list(chart.first) or [metric.key for metric in chart.metrics[:4]],
        "metrics": to_json(chart.metrics),
        "lines": [_line(line, chart.metrics) for line in chart.lines],
        "authors": [
            {
                "line": author.line,
                "figures": {
                    key: [_rounded(mean), *(map(_rounded, band) if band else (None, None))]
                    for key, (mean, band) in author.figures.items()
                },
            }
            for author in chart.authors
        ],
    }
    scripts = (*DRAWING, "metric_panel.js", "metric_controls.js")
    return Interactive(payload, scripts, "metrics.css")


def number_words(value: float) -> str:
    """Return ``value`` to three significant digits, as the page's tables and hints show it.

    >>> [number_words(x) for x in (0.98765, 45.21, -1234.5, 0.00012, 3.0)]
    ['0.988', '45.2', '-1,234', '0.00012', '3']
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def interval_words(mean: float | None, interval: Interval | None) -> str:
    """Return ``45.2 [43.1, 47]``, or ``not measured``."""
    if mean is None:
        return "not measured"
    ends = f" [{', '.join(map(number_words, interval))}]" if interval else ""
    return f"{number_words(mean)}{ends}"


def _line(line: Line, metrics: Sequence[Metric]) -> dict[str, Any]:
    labels = {metric.key: metric.labels for metric in metrics}
    return {
        "name": one_line(line.name),
        "about": [one_line(words) for words in line.about],
        "sizes": list(line.sizes),
        "metrics": {
            key: {
                "mean": [_rounded(point.mean) for point in points],
                "low": [_rounded(point.interval and point.interval[0]) for point in points],
                "high": [_rounded(point.interval and point.interval[1]) for point in points],
                "words": [_words(point, labels[key]) for point in points],
                "count": [point.count for point in points],
                "rounds": [[_rounded(value) for value in point.rounds] for point in points],
            }
            for key, points in line.points.items()
            if key in labels and any(point.mean is not None for point in points)
        },
    }


def _words(point: Point, labels: Sequence[str]) -> str:
    if labels and point.mean is not None:
        return labels[round(point.mean)]
    return interval_words(point.mean, point.interval)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
