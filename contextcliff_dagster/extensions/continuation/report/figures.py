"""Pictures of score, share without collapse and decline by context size, with one line per arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.continuation.results import (
    ArmComparison,
    ArmDifference,
    ArmResult,
    ContinuationResult,
    Decline,
    Endpoint,
    EndpointName,
)
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import level, tokens, two_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE, _LEFT = 10.1, 1.05


@house.styled()
def plot_sizes(result: ContinuationResult) -> bytes:
    """Draw three panels that share an axis of context sizes; return the PNG.

    Dots are means over passages with their intervals; arms are slightly offset. The grey band shows
    the range of means of as many human passages. In the panel of declines, filled dots are
    significant after Holm. The same input gives the same bytes.
    """
    figure = house.blank_page(11.2)
    above = house.panel(figure, _LEFT, 6.9, _WIDE, 3.0)
    middle = house.panel(figure, _LEFT, 4.75, _WIDE, 1.75)
    below = house.panel(figure, _LEFT, 1.45, _WIDE, 2.9)
    for axes in (above, middle, below):
        house.token_axis(
            axes, house.with_air(*house.token_limits(result.sizes)), named=axes is below
        )
        axes.grid(axis="y")
    _draw_human(above, result)
    _draw_means(above, result.arms, "score", "mean score")
    _draw_means(middle, result.arms, "intact", "without collapse")
    _draw_declines(below, result)
    below.set_xlabel("tokens of context (log scale)")
    house.write(
        figure,
        _LEFT,
        10.85,
        f"Continuations over context size: {house.shortened(result.model, 48)}",
        fontsize=14,
        fontweight="bold",
    )
    figure.legend(
        handles=_legend(result),
        loc="upper left",
        bbox_to_anchor=((_LEFT - 0.1) / 11.5, 10.68 / 11.2),
        ncol=min(len(result.arms) + 1, 5),
    )
    house.write(figure, _LEFT, 0.42, _note(result), fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=128)


def _draw_human(axes: Axes, result: ContinuationResult) -> None:
    human = result.human
    if human is None:
        return
    axes.axhspan(human.floor_low, human.floor_high, color=house.FAINT, alpha=0.6, lw=0, zorder=0)
    axes.axhline(human.mean, color=house.SOFT_INK, lw=1.2, ls=(0, (4, 2)), zorder=1)


def _draw_means(axes: Axes, arms: Sequence[ArmResult], name: EndpointName, label: str) -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.set_ylabel(label)
    for place, arm in enumerate(arms):
        style = house.look(place)
        rows = [row for row in _endpoint(arm, name).sizes if row.mean is not None]
        at = [row.context_tokens * _offset(place, len(arms)) for row in rows]
        means = [row.mean or 0.0 for row in rows]
        axes.plot(at, means, color=style.colour, ls=style.dash, lw=1.8, zorder=3)
        house.draw_markers(
            axes, at, means, style.colour, marker=style.marker, ms=7, mew=0.9, zorder=4
        )
        for x, row in zip(at, rows, strict=True):
            if row.ci_low is not None and row.ci_high is not None:
                axes.plot([x, x], [row.ci_low, row.ci_high], color=style.colour, lw=1.3, zorder=2)


def _draw_declines(axes: Axes, result: ContinuationResult) -> None:
    axes.axhline(0, color=house.SOFT_INK, lw=1.0, zorder=1)
    axes.axhline(result.margin, color=house.SOFT_INK, lw=1.0, ls=(0, (1.2, 1.6)), zorder=1)
    axes.set_ylabel("decline of the score")
    reach = [result.margin]
    for place, arm in enumerate(result.arms):
        for size in arm.score.sizes:
            decline = size.decline
            if decline is None or decline.decline is None:
                continue
            x = size.context_tokens * _offset(place, len(result.arms))
            reach += _draw_row(axes, (x, decline.decline), decline, house.look(place), result)
    most = min(1.05, 1.25 * max(reach))
    axes.set_ylim(-most, most)
    step = min(0.18, 0.7 / len(result.arms))  # so that labels of neighbours do not touch
    for place, arm in enumerate(result.arms):
        _draw_location(axes, arm, -most * (0.93 - step * place), house.look(place).colour)


def _draw_location(axes: Axes, arm: ArmResult, y: float, colour: str) -> None:
    """Mark the size at which half of the score's loss has occurred, with its interval as a bar."""
    location = arm.score.location
    if location is None:
        return
    axes.plot(
        [location.low_tokens, location.high_tokens],
        [y, y],
        color=colour,
        lw=4,
        alpha=0.5,
        solid_capstyle="butt",
    )
    if location.tokens is not None:
        axes.axvline(location.tokens, color=colour, lw=1.2, zorder=1)
        axes.annotate(
            f"half of the loss at {tokens(two_digits(location.tokens))}",
            (location.tokens, y),
            xytext=(-5, 6),
            textcoords="offset points",
            ha="right",
            color=colour,
            fontsize=10,
            bbox={"boxstyle": "square,pad=0.1", "fc": (1, 1, 1, 0.8), "ec": "none"},
            zorder=6,
        )


def _endpoint(arm: ArmResult, name: EndpointName) -> Endpoint:
    return arm.score if name == "score" else arm.intact


def _offset(place: int, count: int) -> float:
    return float(1.05 ** (place - (count - 1) / 2))


def _legend(result: ContinuationResult) -> list[Any]:
    from matplotlib.patches import Patch

    names = (house.shortened(arm.arm, 24) for arm in result.arms)
    handles: list[Any] = [*house.line_handles(names)]
    if result.human is not None:
        handles.append(
            Patch(color=house.FAINT, label=f"means of {result.human.floor_passages} human passages")
        )
    return handles


def _note(result: ContinuationResult) -> str:
    first = tokens(result.sizes[0])
    return (
        f"Bars: {level(result.confidence)} intervals over {result.arms[0].clusters}. Below: "
        f"score at {first} tokens less that at each size;\nfilled: significant after Holm over all "
        f"tests of the arm; dotted: the margin of {result.margin:g}; thick bar: interval of the "
        "location of the loss."
    )


@house.styled()
def plot_arms(result: ContinuationResult) -> bytes | None:
    """Draw each arm minus the reference by size: score (left), share without collapse (right).

    Return the PNG, or None with a single arm. The same input gives the same bytes.
    """
    if not result.comparisons:
        return None
    figure = house.blank_page(5.6)
    sides: tuple[tuple[EndpointName, str, float], ...] = (
        ("score", "score", 1.0),
        ("intact", "share without collapse", 6.6),
    )
    for name, title, left in sides:
        axes = house.panel(figure, left, 1.2, 4.6, 3.1)
        house.token_axis(axes, house.with_air(*house.token_limits(result.sizes)), most=6)
        axes.grid(axis="y")
        axes.set_title(title, fontsize=12)
        axes.axhline(0, color=house.SOFT_INK, lw=1.0, zorder=1)
        axes.axhspan(-result.margin, result.margin, color=house.FAINT, alpha=0.5, lw=0, zorder=0)
        reach = [result.margin]
        for place, comparison in enumerate(result.comparisons):
            reach += _draw_differences(axes, comparison, name, place, result)
        most = min(1.05, 1.2 * max(reach))
        axes.set_ylim(-most, most)
        axes.set_xlabel("tokens of context (log scale)")
    title = (
        f"Arms minus {house.shortened(result.reference, 24)}: {house.shortened(result.model, 50)}"
    )
    house.write(figure, 0.4, 5.25, title, fontsize=14, fontweight="bold")
    figure.legend(
        handles=_legend(result)[1 : len(result.arms)],
        loc="upper left",
        bbox_to_anchor=(0.3 / 11.5, 5.12 / 5.6),
        ncol=5,
    )
    note = (
        f"{level(result.confidence)} intervals over {result.arms[0].clusters}; filled: significant "
        f"after Holm over the sizes of the arm; grey: the margin of {result.margin:g}."
    )
    house.write(figure, 0.4, 0.3, note, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=128)


def _draw_differences(
    axes: Axes,
    compared: ArmComparison,
    name: EndpointName,
    place: int,
    result: ContinuationResult,
) -> list[float]:
    style = house.look(place + 1)
    reach: list[float] = []
    points: list[tuple[float, float]] = []
    for row in compared.sizes:
        if row.endpoint != name or row.difference is None or row.context_tokens is None:
            continue
        x = row.context_tokens * _offset(place, len(result.comparisons))
        points.append((x, row.difference))
        reach += _draw_row(axes, (x, row.difference), row, style, result)
    axes.plot([x for x, _ in points], [y for _, y in points], color=house.INK, lw=0.8, zorder=1)
    return reach


def _draw_row(
    axes: Axes,
    at: tuple[float, float],
    row: Decline | ArmDifference,
    style: house.Look,
    result: ContinuationResult,
) -> list[float]:
    """Draw one difference ``at`` (x, y); return the distances from 0 that the axes must include."""
    ends = row.ci_low, row.ci_high
    sure = row.p_holm is not None and row.p_holm <= 1.0 - result.confidence
    house.draw_difference(axes, at, ends, style.colour, sure=sure, marker=style.marker)
    return [abs(end) for end in (at[1], *ends) if end is not None]
