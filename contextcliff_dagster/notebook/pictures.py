"""Pictures of results: in figures of their own, in axes of the caller's, and as PNG for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from contextcliff_dagster.contracts.results import Cliffs, Comparison
    from contextcliff_dagster.notebook.results import Result

_SIZE, _TALL = (9.0, 4.4), (9.0, 6.2)
"""Inches: as wide as a notebook's column."""
_COLOURS = 64


def plot_results(results: Sequence[Result], ax: Axes | None) -> tuple[Figure, Axes]:
    """Draw the results into ``ax``, or into a figure of pyplot's that a notebook shows."""
    import matplotlib

    from contextcliff_dagster.reporting.figures.house import styled
    from contextcliff_dagster.reporting.figures.report_figure import draw_scores

    cliffs, records = [one.cliffs for one in results], records_of_all(results)
    if ax is not None:
        with matplotlib.rc_context({"text.parse_math": False}):
            draw_scores(ax, cliffs, records)
        return _figure_of(ax), ax
    from matplotlib import pyplot

    with styled():
        figure, ax = pyplot.subplots(figsize=_SIZE, layout="constrained")
        draw_scores(ax, cliffs, records)
    return figure, ax


def results_png(results: Sequence[Result]) -> bytes:
    """The same as PNG, without a figure that stays open."""
    from contextcliff_dagster.reporting.figures.house import png_bytes, styled
    from contextcliff_dagster.reporting.figures.report_figure import draw_scores

    with styled():
        figure = _page(_SIZE)
        draw_scores(figure.add_subplot(), [one.cliffs for one in results], records_of_all(results))
        return png_bytes(figure, _COLOURS)


def plot_comparison(
    comparison: Comparison, cliffs: Sequence[Cliffs | None], axes: tuple[Axes, Axes] | None
) -> tuple[Figure, tuple[Axes, Axes]]:
    """Draw a comparison into two ``axes``, or into a figure of pyplot's that a notebook shows."""
    import matplotlib

    from contextcliff_dagster.reporting.figures.house import styled

    if axes is not None:
        above, below = axes
        with matplotlib.rc_context({"text.parse_math": False}):
            _draw_comparison((above, below), comparison, cliffs)
        return _figure_of(above), (above, below)
    from matplotlib import pyplot

    with styled():
        figure, pair = pyplot.subplots(2, figsize=_TALL, layout="constrained", **_PANELS)
        _draw_comparison((pair[0], pair[1]), comparison, cliffs)
    return figure, (pair[0], pair[1])


def comparison_png(comparison: Comparison, cliffs: Sequence[Cliffs | None]) -> bytes:
    """The same as PNG, without a figure that stays open."""
    from contextcliff_dagster.reporting.figures.house import png_bytes, styled

    with styled():
        figure = _page(_TALL)
        above, below = figure.subplots(2, **_PANELS)
        _draw_comparison((above, below), comparison, cliffs)
        return png_bytes(figure, _COLOURS)


_PANELS: dict[str, Any] = {"sharex": True, "height_ratios": (2, 1)}


def _draw_comparison(
    panels: tuple[Axes, Axes], comparison: Comparison, cliffs: Sequence[Cliffs | None]
) -> None:
    from contextcliff_dagster.reporting.figures.comparison import draw_shift

    legend = draw_shift(panels, comparison, cliffs)
    panels[0].legend(handles=legend, loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False)


def records_of_all(results: Sequence[Result]) -> pd.DataFrame | None:
    """Lengths and scores of all results, by model; None without any."""
    import pandas as pd

    frames = [
        one.records[["length_tokens", "score"]].assign(model=one.cliffs.model) for one in results
    ]
    return pd.concat(frames, ignore_index=True) if frames else None


def _page(inches: tuple[float, float]) -> Figure:
    """A white figure with a canvas of its own, by which texts are measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _figure_of(ax: Axes) -> Figure:
    """The figure that holds ``ax``, through subfigures."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure
