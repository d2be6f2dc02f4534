"""Every metric over context size: the data of the interactive picture, and the plain one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.html.metric_chart import (
    Author,
    Interval,
    Line,
    Metric,
    MetricChart,
    Point,
)
from contextcliff_dagster.reporting.wording.number_format import count, level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from contextcliff_dagster.extensions.continuation.results import (
        ArmResult,
        ContinuationResult,
        MetricSize,
        SizeOutcome,
    )
    from contextcliff_dagster.reporting.html.metric_chart import Point


METRIC_NAMES = {
    "score": "Score (nearness to the author's prose)",
    "intact": "Share without collapse",
    "diversity_50": "Distinct words within 50 (share)",
    "diversity_200": "Distinct words within 200 (share)",
    "repetition_50": "Repeated pairs of words within 50 (share)",
    "repetition_200": "Repeated runs of three words within 200 (share)",
    "word_length": "Letters of a word",
    "long_words": "Words of more than six letters (share)",
    "function_words": "Function words (share)",
    "broken_articles": "Articles without a noun (share)",
    "pronouns": "Pronouns (share)",
    "sentences": "Sentences",
    "sentence_length": "Words of a sentence",
    "sentence_variation": "Variation of sentence lengths",
    "rhythm": "Correlation of neighbouring sentence lengths",
    "lix": "Readability (LIX)",
    "shared_content": "Content words shared with the sentence before (share)",
    "commas": "Commas in 100 words",
    "semicolons": "Semicolons in 100 words",
    "questions": "Question marks in 100 words",
    "exclamations": "Exclamation marks in 100 words",
    "dashes": "Dashes in 100 words",
    "quotation_marks": "Quotation marks in 100 words",
    "near_coherence": "Similarity of neighbouring sentences",
    "far_coherence": "Similarity of sentences five apart",
}
FIRST = (
    "score",
    "diversity_200",
    "diversity_50",
    "lix",
    "repetition_200",
    "repetition_50",
    "intact",
)
"""Metrics of the first four panels: the first four that are measured."""


def metric_name(key: str) -> str:
    """The name of a column of the records."""
    return METRIC_NAMES.get(key, key.replace("_", " ").capitalize())


def metric_chart(
    result: ContinuationResult, about: Mapping[str, Sequence[str]] | None = None
) -> MetricChart:
    """Return the metrics of ``result``, score and share without collapse first.

    ``about``: arm -> how it was sampled, in short statements.
    """
    of = "text" if result.arms[0].clusters == "texts" else "passage"
    lines = [_line(arm, result, (about or {}).get(arm.arm, ())) for arm in result.arms]
    measured = {
        key
        for line in lines
        for key, of in line.points.items()
        if any(p.mean is not None for p in of)
    }
    return MetricChart(
        title="Each metric over context size",
        kind="arm",
        metrics=[
            Metric(key, metric_name(key))
            for key in ("score", "intact", *(one.name for one in result.metrics))
        ],
        lines=lines,
        authors=[Author(author_figures(result))],
        bars=f"Points are means over passages; bars are {level(result.confidence)} intervals, "
        f"resampled by {of}.",
        band="Dashed: what the authors wrote after the same points, with a band of one SD between "
        "passages; for the score, human passages and where means of as many lie.",
        first=[key for key in FIRST if key in measured][:4],
    )


def points_of(arm: ArmResult, result: ContinuationResult) -> dict[str, list[Point]]:
    """Metric -> a point for each size of the result; metrics without any figure are empty."""
    sizes: dict[str, Sequence[SizeOutcome | MetricSize]] = {
        "score": arm.score.sizes,
        "intact": arm.intact.sizes,
    }
    for metric in result.metrics:
        for own in metric.arms:
            if own.arm == arm.arm:
                sizes[metric.name] = own.sizes
    return {key: [_point(one) for one in found] for key, found in sizes.items()}


def author_figures(result: ContinuationResult) -> dict[str, tuple[float, Interval | None]]:
    """Metric -> the authors' mean and the band around it."""
    found: dict[str, tuple[float, Interval | None]] = {}
    if result.human is not None:
        human = result.human
        found["score"] = human.mean, (human.floor_low, human.floor_high)
    for metric in result.metrics:
        own = metric.author
        if own is not None:
            band = None if own.sd is None else (own.mean - own.sd, own.mean + own.sd)
            found[metric.name] = own.mean, band
    return found


def _line(arm: ArmResult, result: ContinuationResult, about: Sequence[str]) -> Line:
    points = points_of(arm, result)
    return Line(arm.arm, list(result.sizes), points, about)


def _point(one: SizeOutcome | MetricSize) -> Point:
    interval = None
    if one.ci_low is not None and one.ci_high is not None:
        interval = (one.ci_low, one.ci_high)
    rounds = [value for value in one.rounds if value is not None]
    words = f"{count(one.n, 'continuation')} of {count(one.n_passages, 'passage')}"
    if len(rounds) > 1:
        words += f", {len(one.rounds)} rounds"
    return Point(one.mean, interval, words, one.rounds)


_COLUMNS = 4
_LEFT, _GAP, _HEAD, _FOOT = 0.55, 0.5, 1.0, 0.75
_TALL, _NAME = 1.05, 0.6
_AUTHOR = "#2E8B57"


@house.styled()
def plot_metrics(result: ContinuationResult) -> bytes | None:
    """PNG bytes: a panel for each metric that any arm has; None without any but score and share.

    Bars are intervals; dashed with a band of one SD: the authors. Same input, same bytes.
    """
    points = [points_of(arm, result) for arm in result.arms]
    shown = [
        key
        for key in ("score", "intact", *(one.name for one in result.metrics))
        if any(point.mean is not None for arm in points for point in arm.get(key, ()))
    ]
    if not set(shown) - {"score", "intact"}:
        return None
    pitch = _TALL + _NAME
    height = _HEAD + math.ceil(len(shown) / _COLUMNS) * pitch + _FOOT
    figure = house.blank_page(height)
    wide = (house.WIDTH - _LEFT - 0.3 - (_COLUMNS - 1) * _GAP) / _COLUMNS
    limits = house.with_air(*house.token_limits([float(size) for size in result.sizes]))
    authors = author_figures(result)
    for place, key in enumerate(shown):
        row, column = divmod(place, _COLUMNS)
        left, bottom = _LEFT + column * (wide + _GAP), height - _HEAD - (row + 1) * pitch + 0.12
        axes = house.panel(figure, left, bottom, wide, _TALL)
        house.token_axis(axes, limits, named=place + _COLUMNS >= len(shown), most=4)
        axes.tick_params(length=2, labelsize=8.5)
        axes.locator_params(axis="y", nbins=4)
        axes.grid(axis="y")
        if key in authors:
            mean, band = authors[key]
            axes.axhline(mean, color=_AUTHOR, ls="--", lw=1.1, zorder=1)
            if band:
                axes.axhspan(*band, color=_AUTHOR, alpha=0.1, lw=0, zorder=0)
        for number, arm in enumerate(points):
            _draw(axes, result.sizes, arm.get(key, ()), number)
        house.write(
            figure, left, bottom + _TALL + 0.15, house.shortened(metric_name(key), 34), fontsize=9
        )
    title = f"Metrics of prose over context size: {house.shortened(result.model, 48)}"
    house.write(figure, 0.4, height - 0.3, title, fontsize=13, fontweight="bold")
    figure.legend(
        handles=_legend(result),
        loc="upper left",
        bbox_to_anchor=(0.025, 1 - 0.42 / height),
        ncol=min(len(result.arms), 5),
        fontsize=9.5,
    )
    note = (
        f"Tokens of context (log scale). Means over passages with {level(result.confidence)} "
        "intervals. Dashed: the authors, with a band of one SD between passages."
    )
    house.write(figure, 0.4, 0.25, note, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure, 64)


def _draw(axes: Axes, sizes: Sequence[int], points: Sequence[Point], number: int) -> None:
    style = house.look(number)
    found = [(x, one.mean, one) for x, one in zip(sizes, points, strict=False)]
    known = [(x, mean, one) for x, mean, one in found if mean is not None]
    at, means = [x for x, _, _ in known], [mean for _, mean, _ in known]
    axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.2, zorder=3)
    house.draw_markers(axes, at, means, style.colour, marker=style.marker, ms=4, mew=0.5, zorder=4)
    for x, _, one in known:
        if one.interval is not None:
            axes.plot([x, x], one.interval, color=style.colour, lw=0.9, zorder=2)


def _legend(result: ContinuationResult) -> list[Line2D]:
    from matplotlib.lines import Line2D

    styles = [(house.look(number), arm.arm) for number, arm in enumerate(result.arms)]
    return [
        Line2D(
            [],
            [],
            color=style.colour,
            ls=style.dash,
            marker=style.marker,
            label=house.shortened(name, 28),
        )
        for style, name in styles
    ]
