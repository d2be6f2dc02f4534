"""Picture of each format's scores and fitted curve, over tokens of its text and over records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.utilization.analysis.wording import format_name
from contextcliff_dagster.extensions.utilization.report.names import scale_axis, scope_name
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from contextcliff_dagster.extensions.utilization.results import (
        Axis,
        FormatCurve,
        ScaleScore,
        UtilizationResult,
    )

_LEFT, _WIDE, _GAP = 0.85, 4.9, 0.6
_TALL, _ROW, _FOOT, _HEAD = 2.75, 3.75, 1.05, 1.25
_APART = 1.035
"""Horizontal factor between two formats' marks at one length."""


@house.styled()
def plot_scores(result: UtilizationResult) -> bytes:
    """Return the picture as PNG: a row per benchmark, with all pooled first if there are several.

    Marks are mean scores of a scale with intervals over documents; lines are fitted curves with
    their bands. Lengths are tokens of each format's text on the left and records on the right, so
    that equal content is aligned there. The same input gives the same bytes.
    """
    scopes = [None, *result.benchmarks] if len(result.benchmarks) > 1 else [None]
    height = _HEAD + _ROW * len(scopes) - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    for row, scope in enumerate(scopes):
        curves = [curve for curve in result.curves if curve.benchmark == scope]
        bottom = height - _HEAD - row * _ROW - _TALL
        last = row == len(scopes) - 1
        for place, axis in enumerate(("tokens", "records")):
            axes = house.panel(figure, _LEFT + place * (_WIDE + _GAP), bottom, _WIDE, _TALL)
            _draw(axes, curves, result, axis, named=last)  # type: ignore[arg-type]
            if place == 0:
                axes.set_ylabel("mean score")
                axes.set_title(scope_name(scope, result.benchmarks), fontsize=12)
            else:
                axes.tick_params(axis="y", labelleft=False)
    title = f"Score by format: {house.shortened(result.model, 60)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    handles = house.line_handles(map(format_name, result.formats))
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(0.25 / figure.get_size_inches()[0], 1 - 0.66 / height),
        ncol=len(handles),
        borderpad=0,
    )
    note = (
        f"Marks: mean scores of a scale with {level(result.confidence)} intervals, over documents. "
        f"Lines: fitted curves with {level(result.confidence)} bands. Dotted: safe caps."
    )
    house.write(figure, 0.3, 0.22, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=160)


def _draw(
    axes: Axes, curves: Sequence[FormatCurve], result: UtilizationResult, axis: Axis, *, named: bool
) -> None:
    points = [_points(curve, axis) for curve in curves]
    lengths = [at for of_curve in points for at, _ in of_curve]
    profiles = [curve.tokens if axis == "tokens" else curve.records for curve in curves]
    lengths += [point.at for profile in profiles if profile for point in profile.curve]
    if axis == "tokens":
        scale_axis(axes, result.scales, lengths or [1.0], 7)
    else:
        house.token_axis(axes, house.with_air(*house.token_limits(lengths)), most=7)
    axes.grid(axis="y")
    axes.set_ylim(-0.03, 1.04)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    if named:
        axes.set_xlabel("tokens of the format's text" if axis == "tokens" else "records")
    if not lengths:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=house.SOFT_INK)
    for place, (of_curve, profile) in enumerate(zip(points, profiles, strict=True)):
        style = house.look(place)
        if profile and profile.curve:
            x = [point.at for point in profile.curve]
            low, high = ([getattr(p, end) for p in profile.curve] for end in ("ci_low", "ci_high"))
            axes.fill_between(x, low, high, color=style.colour, alpha=0.13, lw=0, zorder=1)
            means = [point.mean for point in profile.curve]
            axes.plot(x, means, color=style.colour, ls=style.dash, lw=1.9, zorder=3)
        if profile and profile.cap is not None:
            axes.axvline(profile.cap, color=style.colour, ls=(0, (1, 1.6)), lw=1.5, zorder=2)
        shift = _APART ** (place - (len(curves) - 1) / 2)
        marks: dict[str, Any] = {"marker": style.marker, "ms": 6.5, "mew": 0.9, "zorder": 5}
        house.draw_markers(
            axes, [at * shift for at, _ in of_curve], [s.mean for _, s in of_curve], style.colour,
            **marks,
        )  # fmt: skip
        for at, score in of_curve:
            if score.ci_low is not None and score.ci_high is not None:
                ends = [score.ci_low, score.ci_high]
                axes.plot([at * shift] * 2, ends, color=style.colour, lw=1.3, zorder=4)


def _points(curve: FormatCurve, axis: Axis) -> list[tuple[float, ScaleScore]]:
    """Return length and score of each scale with an answer."""
    lengths = [(s.tokens if axis == "tokens" else s.records, s) for s in curve.scales]
    return [(float(at), scale) for at, scale in lengths if at and scale.mean is not None]
