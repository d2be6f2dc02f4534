"""A result as lines of the interactive picture: an arm a line, the authors' own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.continuation.report.metric_names import FIRST, metric_name
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
    from contextcliff_dagster.experiments.continuation.results import (
        ArmResult,
        ContinuationResult,
        MetricSize,
        SizeOutcome,
    )


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
