"""The statistics of one run in four panels: composite score, variation, effects, significance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.continuation.compat.runs import Run
from contextcliff_dagster.reporting.figures import house

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ZONES = (
    (0, 20, "stable", "none"),
    (20, 40, "transition", "mild"),
    (40, 100, "degraded", "severe"),
)
_VARIATION_LIMIT, _MEDIUM, _LARGE = 0.15, 0.3, 0.5
_COLOURS = {"p < .01": "#B5482F", "p < .05": "#E39B7B", "n.s.": "#EEF1F4"}


@house.styled()
def plot_enhanced(run: Run, result: dict[str, Any], dpi: int) -> bytes:
    """PNG bytes of ``result``, the statistics of ``run`` (`compat.statistics`)."""
    height = 9.7
    figure = house.blank_page(height)
    figure.set_dpi(dpi)
    places = [(0.75 + 5.5 * column, 5.35 - 4.2 * row) for row in (0, 1) for column in (0, 1)]
    axes = [house.panel(figure, left, bottom, 4.85, 3.2) for left, bottom in places]
    _draw_composite(axes[0], result)
    _draw_variation(axes[1], result)
    _draw_effects(axes[2], result)
    _draw_significance(axes[3], result)
    name = house.shortened(run.name, 60)
    title = f"Degradation statistics: {name}"
    house.write(figure, 0.37, height - 0.3, title, fontsize=14, fontweight="bold")
    summary, rho = result["summary"], result["trend_correlation"]
    words = (
        f"Trend of the means: rank correlation {rho:.2f}, p = {result['trend_p_value']:.3g}; "
        f"{'degradation' if summary['degradation_detected'] else 'no degradation'} by this rule, "
        f"which has no null control; two-sided tests against {result['baseline_context']:,} tokens"
    )
    house.write(figure, 0.37, height - 0.62, words, fontsize=9.5, color=house.SOFT_INK)
    return house.png_bytes(figure)


def _draw_composite(axes: Axes, result: dict[str, Any]) -> None:
    sizes, scores = result["context_sizes"], result["composite_scores"]
    limits = house.with_air(*house.token_limits([float(size) for size in sizes]))
    house.token_axis(axes, limits)
    for low, high, zone, word in _ZONES:
        axes.axhspan(low, high, color=house.ZONE_SHADE[zone], lw=0, zorder=0)
        axes.text(
            1.0, low + 1, word, transform=axes.get_yaxis_transform(), ha="right", fontsize=8.5
        )
    means = [scores[size]["mean"] for size in sizes]
    below = [mean - scores[size]["ci_lower"] for mean, size in zip(means, sizes, strict=True)]
    above = [scores[size]["ci_upper"] - mean for mean, size in zip(means, sizes, strict=True)]
    colour = house.look(0).colour
    # An interval of the bootstrap may miss its own mean by a rounding error.
    errors = [[max(0.0, x) for x in below], [max(0.0, x) for x in above]]
    axes.errorbar(sizes, means, errors, color=colour, marker="o", ms=5, capsize=3, lw=1.8)
    axes.set_ylim(0, 100)
    axes.set_title("Composite score with 95% interval (higher is worse)", fontsize=11)
    axes.set_xlabel("Context size in tokens (log scale)")


def _draw_variation(axes: Axes, result: dict[str, Any]) -> None:
    scores = [result["composite_scores"][size] for size in result["context_sizes"]]
    bars = [one["std"] / one["mean"] if one["mean"] else 0.0 for one in scores]
    _bars(axes, result["context_sizes"], bars)
    axes.axhline(_VARIATION_LIMIT, color=house.INK, ls="--", lw=1.1)
    axes.set_ylim(0, 1.08 * max(_VARIATION_LIMIT * 1.3, *bars))
    axes.set_title("Coefficient of variation of the composite score", fontsize=11)


def _draw_effects(axes: Axes, result: dict[str, Any]) -> None:
    effects = result["effect_sizes"]
    _bars(axes, list(effects), [abs(one["effect_size"]) for one in effects.values()])
    for limit, word in ((_MEDIUM, "medium"), (_LARGE, "large")):
        axes.axhline(limit, color=house.INK, ls="--", lw=1.1)
        transform = axes.get_yaxis_transform()
        axes.text(0.005, limit + 0.01, word, transform=transform, fontsize=8)
    axes.set_ylim(0, 1.08)
    axes.set_title("Effect against the smallest context (|rank-biserial r|)", fontsize=11)


def _draw_significance(axes: Axes, result: dict[str, Any]) -> None:
    from matplotlib.patches import Patch, Rectangle

    tests = result["significance_tests"]
    for row, key in enumerate(("p_value", "corrected_p_value")):
        for place, one in enumerate(tests.values()):
            p = one[key]
            word = "p < .01" if p < 0.01 else "p < .05" if p < 0.05 else "n.s."
            axes.add_patch(
                Rectangle((place - 0.5, row - 0.5), 1, 1, fc=_COLOURS[word], ec="white", lw=1.5)
            )
            if len(tests) <= 12:
                colour = "white" if p < 0.01 else house.INK
                axes.text(place, row, f"{p:.2g}", ha="center", va="center", color=colour)
    axes.set_xlim(-0.5, max(len(tests), 1) - 0.5)
    axes.set_ylim(1.5, -0.5)
    _name_sizes(axes, list(tests))
    axes.set_yticks([0, 1], ["p", "Holm"])
    axes.tick_params(length=0)
    patches = [Patch(color=colour, label=word) for word, colour in _COLOURS.items()]
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1.0, -0.35), ncol=3, fontsize=9)
    axes.set_title("Significance (Mann-Whitney, two-sided)", fontsize=11)


def _bars(axes: Axes, sizes: list[int], values: list[float]) -> None:
    axes.grid(axis="y", color=house.FAINT)
    axes.bar(range(len(sizes)), values, color=house.look(0).colour, width=0.7)
    axes.set_xlim(-0.6, max(len(sizes), 1) - 0.4)
    _name_sizes(axes, sizes)


def _name_sizes(axes: Axes, sizes: list[int]) -> None:
    step = -(-len(sizes) // 9) or 1
    names = [house.token_label(size) if k % step == 0 else "" for k, size in enumerate(sizes)]
    axes.set_xticks(range(len(sizes)), names)
    axes.set_xlabel("Context size in tokens")
