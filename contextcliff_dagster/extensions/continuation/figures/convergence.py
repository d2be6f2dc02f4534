"""At which context sizes each metric is near the author's own figure."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.continuation.compat.runs import Run
from contextcliff_dagster.extensions.continuation.compat.statistics import Convergence
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEAR, _FAR = "#4C9A6A", "#E9ECEF"
_ROW, _MOST_LINES = 0.24, 9


@house.styled()
def plot_convergence(run: Run, found: Convergence, dpi: int) -> bytes:
    """PNG bytes: a map of metrics and sizes, sizes of the first approach, and groups alike."""
    tall = max(4.6, _ROW * len(found.near))
    height = tall + 1.9
    figure = house.blank_page(height)
    figure.set_dpi(dpi)
    _draw_map(house.panel(figure, 2.35, 0.75, 4.0, tall), found)
    _draw_first(house.panel(figure, 7.1, 0.75 + tall - 2.0, 4.0, 2.0), found)
    _write_groups(figure, found, 0.75 + tall - 2.9)
    title = f"Near the author's text: {house.shortened(run.name, 56)}"
    house.write(figure, 0.37, height - 0.3, title, fontsize=14, fontweight="bold")
    words = f"Averages within {found.tolerance:.0%} of the author's figure"
    house.write(figure, 0.37, height - 0.62, words, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure)


def _draw_map(axes: Axes, found: Convergence) -> None:
    from matplotlib.colors import ListedColormap

    cells = [[float(near) for near in row] for row in found.near.values()]
    colours = ListedColormap([_FAR, _NEAR])
    axes.pcolormesh(cells, cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.2)
    axes.invert_yaxis()
    axes.set_yticks([k + 0.5 for k in range(len(cells))], list(found.near), fontsize=8.5)
    step = -(-len(found.sizes) // 9)
    names = [house.token_label(size) if k % step == 0 else "" for k, size in enumerate(found.sizes)]
    axes.set_xticks([k + 0.5 for k in range(len(names))], names)
    axes.tick_params(length=0)
    axes.set_xlabel("Context size in tokens (green: near)")


def _draw_first(axes: Axes, found: Convergence) -> None:
    from matplotlib.ticker import MaxNLocator

    firsts = [found.first_size(metric) for metric in found.near]
    bins: list[int | None] = [*found.sizes, None]
    axes.bar(range(len(bins)), [firsts.count(one) for one in bins], color=house.look(0).colour)
    step = -(-len(bins) // 7)
    names = ["never" if one is None else house.token_label(one) for one in bins]
    shown = [name if k % step == 0 or name == "never" else "" for k, name in enumerate(names)]
    axes.set_xticks(range(len(bins)), shown, fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Metrics by the size of their first approach", fontsize=11)


def _write_groups(figure: Figure, found: Convergence, top: float) -> None:
    house.write(figure, 7.1, top, "Metrics near at the same sizes", fontsize=11, fontweight="bold")
    groups = [group for group in found.groups() if len(group) > 1]
    lines = [line for group in groups for line in wrap(", ".join(group), 62)] or ["none"]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = ["and further ones, which the JSON file lists"]
    for place, line in enumerate(lines):
        house.write(figure, 7.1, top - 0.28 - 0.2 * place, line, fontsize=8)
