"""The main panel: single answers, bin means with intervals, and the fitted curve with its band."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.reporting.figures.house import draw_band, draw_markers, look, shifted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.results import Cliffs

_LANE_GAP, _DODGE_PIXELS = 0.035, 7.0
_MANY = 350
"""Dots in one lane beyond which a density tells more than overlapping dots."""


def lane_height(models: int) -> float:
    """Height of one model's lane of dots, in score units."""
    return 0.05 if models == 1 else 0.036 if models <= 3 else 0.026


def score_limits(models: int) -> tuple[float, float]:
    """y range that holds scores 0..1 and, outside, one lane per model for exact 0 and exact 1."""
    rim = _LANE_GAP + models * lane_height(models) + 0.02
    return -rim, 1 + rim


def draw_answers(
    axes: Axes, row: int, models: int, lengths: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Every scored answer of one model.

    Exact zeros and ones, which would hide each other on two lines, are spread over a lane below 0
    or above 1 (a density from ``_MANY`` on); what lies between is at its own height.
    """
    colour = look(row).colour
    height = lane_height(models)
    dots: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 3.4, "mfc": colour, "mec": "none"}
    lanes = {1.0: 1 + _LANE_GAP + row * height, 0.0: -_LANE_GAP - (row + 1) * height}
    for value, bottom in lanes.items():
        x = lengths[scores == value]
        if len(x) > _MANY:
            _density_lane(axes, colour, x, bottom, height)
        elif len(x):
            jitter = np.random.default_rng(zlib.crc32(f"{row}/{value}".encode())).random(len(x))
            y = bottom + height * (0.14 + 0.72 * jitter)
            axes.plot(x, y, **dots, alpha=0.45, zorder=2)
    between = (scores != 0.0) & (scores != 1.0)
    x, y = lengths[between], scores[between]
    if len(x) > 4 * _MANY:
        _density_cells(axes, colour, x, y)
    elif len(x):
        axes.plot(x, y, **dots, alpha=0.28, zorder=2)


def _log_cells(
    axes: Axes, x: NDArray[np.float64], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    edges = np.geomspace(*axes.get_xlim(), columns + 1)
    return edges, np.clip(np.searchsorted(edges, x, side="right") - 1, 0, columns - 1)


def _density_lane(
    axes: Axes, colour: str, x: NDArray[np.float64], bottom: float, height: float
) -> None:
    """Bars whose height is the count: the full lane is the fullest column."""
    edges, column = _log_cells(axes, x, 120)
    counts = np.bincount(column, minlength=120)
    tall, wide = 0.9 * height * counts / counts.max(), np.diff(edges) * 0.9
    bars: dict[str, Any] = {"align": "edge", "color": colour, "alpha": 0.55, "lw": 0, "zorder": 2}
    axes.bar(edges[:-1], tall, wide, bottom, **bars)


def _density_cells(axes: Axes, colour: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    """Squares on a grid whose area is the count."""
    edges, column = _log_cells(axes, x, 90)
    cell = np.clip((y * 40).astype(int), 0, 39) * 90 + column
    counts = np.bincount(cell, minlength=3600)
    full = np.flatnonzero(counts)
    centre = np.sqrt(edges[:-1] * edges[1:])[full % 90]
    area = 34 * counts[full] / counts.max()
    squares: dict[str, Any] = {"marker": "s", "c": colour, "alpha": 0.3, "lw": 0, "zorder": 2}
    axes.scatter(centre, (full // 90 + 0.5) / 40, area, **squares)


def draw_curve(axes: Axes, row: int, models: int, result: Cliffs) -> None:
    """The fitted curve and, where it has one, its band."""
    points = result.curve
    if len(points) < 2:
        return
    style = look(row)
    x, y = [point.tokens for point in points], [point.mean for point in points]
    draw_band(axes, points, style.colour, 0.14 if models <= 3 else 0.08)
    axes.plot(x, y, color="white", lw=4.4, zorder=2.4, alpha=0.8)
    axes.plot(x, y, color=style.colour, lw=2.3, ls=style.dash, zorder=2.5)


def draw_bins(axes: Axes, row: int, models: int, result: Cliffs) -> bool:
    """Bin means with their intervals; True if one had to be drawn without (hollow marker).

    A cross is the mean if each missing answer scores 0.
    """
    style = look(row)
    bar: dict[str, Any] = {
        "alpha": 0.95 if models <= 3 else 0.55,
        "marker": "_",
        "ms": 6,
        "mew": 1.4,
        "lw": 1.7,
        "solid_capstyle": "butt",
        "zorder": 3,
    }
    marks: dict[str, Any] = {"marker": style.marker, "ms": 8, "zorder": 4, "clip_on": False}
    any_hollow = False
    for item in result.bins:
        place, mean = item.median_tokens, item.mean
        if place and item.delivered_mean is not None:
            x, y = dodge(axes, place, row, models), item.delivered_mean
            axes.plot(x, y, "x", color=style.colour, ms=7, mew=1.8, zorder=4)
        if not place or mean is None:
            continue
        x = dodge(axes, place, row, models)
        ends = [end for end in (item.ci_low, item.ci_high) if end is not None]
        hollow = len(ends) < 2
        if not hollow:
            axes.plot([x, x], ends, color=style.colour, **bar)
        draw_markers(axes, x, mean, style.colour, hollow=hollow, mew=1.8 if hollow else 1, **marks)
        any_hollow |= hollow
    return any_hollow


def dodge(axes: Axes, x: float, row: int, models: int) -> float:
    """``x`` moved by some pixels, so that models measured on the same bins do not overlap."""
    return shifted(
        axes, x, (row - (models - 1) / 2) * min(_DODGE_PIXELS, 24 / max(models, 1)) * 160 / 100
    )


def records_of(result: Cliffs, records: pd.DataFrame, results: int) -> pd.DataFrame | None:
    """Rows of one of so many results; None where several are in ``records`` without a name."""
    for column in ("study", "model", "campaign"):
        if column in records.columns and (value := getattr(result, column)) is not None:
            records = records[records[column] == value]
        elif column == "model" and results > 1:
            return None
    return records


def answers_of(
    records: pd.DataFrame | None, results: Sequence[Cliffs], row: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lengths and scores of one result's scored records; empty where there are none to show."""
    mine = None if records is None else records_of(results[row], records, len(results))
    if mine is None or not {"length_tokens", "score"} <= set(mine.columns):
        return np.empty(0), np.empty(0)
    x = mine["length_tokens"].to_numpy(dtype=float, na_value=np.nan)
    y = mine["score"].to_numpy(dtype=float, na_value=np.nan)
    keep = np.isfinite(x) & np.isfinite(y) & (x > 0)
    return x[keep], y[keep]


def free_height(
    axes: Axes, results: Sequence[Cliffs], low: float, high: float, need: float
) -> float | None:
    """Lowest score at which a label meets no curve, band or bar between two lengths.

    ``need``: its height in score units. None where no place between 0 and 1 is free."""
    taken: list[tuple[float, float]] = []
    for row, result in enumerate(results):
        near = [p for p in result.curve if low / 1.06 <= p.tokens <= high * 1.06]
        taken += [_reach(p.mean, p.ci_low, p.ci_high) for p in near]
        for b in result.bins:
            if b.median_tokens and b.mean is not None:
                x = dodge(axes, b.median_tokens, row, len(results))
                if low / 1.02 <= x <= high * 1.02:
                    taken.append(_reach(b.mean, b.ci_low, b.ci_high))
    start = 0.02
    for bottom, top in sorted(taken):
        if start + need <= bottom:
            break
        start = max(start, top)
    return start if start + need <= 1.0 else None


def _reach(mean: float, low: float | None, high: float | None) -> tuple[float, float]:
    """From below to above a mark: its interval, or its mean alone, with some air."""
    ends = [mean, *(end for end in (low, high) if end is not None)]
    return min(ends) - 0.03, max(ends) + 0.03
