"""Picture of attention over length: entropy next to the score, and the shares of attention.

Each model has two panels. One shows normalised entropy with its layers as a band, the score and the
safe cap; the other the shares on the evidence, on the first tokens and on the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import labels, score_name, tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.attention import AttentionBin

Number = float | None
_LEFT, _RIGHT, _APART = 0.62, 0.25, 0.62
_HEAD, _NAME, _TITLE, _TALL, _FOOT = 0.58, 0.34, 0.74, 2.6, 0.66
_BLOCK = _NAME + _TITLE + _TALL + _FOOT
_LETTERS = 60


class Point(NamedTuple):
    """A bin's mean, at the bin's median length, with its interval."""

    bin: str
    tokens: int
    n: int
    mean: float
    low: Number
    high: Number


class Series(NamedTuple):
    """Named means over length. ``look``: index of `house.look`; ``band``: (tokens, low, high)."""

    name: str
    look: int
    points: Sequence[Point]
    band: Sequence[tuple[int, float, float]] = ()


class Panel(NamedTuple):
    """One chart of values 0..1 over length. ``cap``: safe cap to mark, in tokens, or None."""

    title: str
    series: Sequence[Series]
    cap: int | None = None


def attention_panels(result: Cliffs) -> list[Panel]:
    """Return the two panels of a result; empty if attention was not measured."""
    if (attention := result.attention) is None:
        return []
    score = [
        Point(b.bin, b.median_tokens, b.n, b.mean, b.ci_low, b.ci_high)
        for b in result.bins
        if b.median_tokens and b.mean is not None
    ]
    bins = attention.bins
    entropy = Series(
        "entropy, layers as a band", 1, _points(bins, "entropy"), _band(bins, "entropy")
    )
    evidence = Series(
        "on the evidence, layers as a band", 2, _points(bins, "evidence"), _band(bins, "evidence")
    )
    shares = [Series("on the first tokens", 4, _points(bins, "sinks"))]
    if evidence.points:
        shares.insert(0, evidence)
    if remainders := [point for b in bins if (point := _rest(b))]:
        shares.append(Series("on the rest", 5, remainders))
    cap = result.safe_cap_tokens
    return [
        Panel("Entropy and score", [Series(score_name(result), 0, score), entropy], cap),
        Panel("Where the attention goes", shares, cap),
    ]


@house.styled()
def plot_attention(cliffs: Sequence[Cliffs]) -> bytes | None:
    """Return the picture as PNG bytes; None if no result has attention. Same input, same bytes."""
    models = [
        (house.shortened(name, _LETTERS), panels)
        for name, result in zip(labels(cliffs), cliffs, strict=True)
        if (panels := attention_panels(result))
    ]
    if not models:
        return None
    top = _BLOCK * len(models)
    figure = house.blank_page(_HEAD + top)
    heading = "Attention of the last prompt token over document length"
    house.write(figure, 0.18, _HEAD + top - 0.32, heading, fontsize=14, fontweight="bold")
    wide = (house.WIDTH - _LEFT - _RIGHT - _APART) / 2
    for title, panels in models:
        house.write(figure, 0.18, top - 0.14, title, fontsize=11.5, fontweight="bold")
        for column, content in enumerate(panels):
            left, bottom = _LEFT + column * (wide + _APART), top - _NAME - _TITLE - _TALL
            _draw(house.panel(figure, left, bottom, wide, _TALL), content)
        top -= _BLOCK
    return house.png_bytes(figure)


def _points(bins: Sequence[AttentionBin], name: str) -> list[Point]:
    means = [(b, getattr(b, name)) for b in bins]
    return [
        Point(b.bin, b.tokens, score.n, score.mean, score.ci_low, score.ci_high)
        for b, score in means
        if b.tokens and score.mean is not None
    ]


def _band(bins: Sequence[AttentionBin], name: str) -> list[tuple[int, float, float]]:
    layers = [(b.tokens, getattr(b, f"{name}_by_layer")) for b in bins]
    return [(at, min(values), max(values)) for at, values in layers if at and values]


def _rest(b: AttentionBin) -> Point | None:
    """Return the attention on neither first tokens nor evidence; None unless always known."""
    sinks, evidence = b.sinks.mean, b.evidence.mean
    if not b.tokens or sinks is None or b.evidence.n not in (0, b.sinks.n):
        return None
    return Point(b.bin, b.tokens, b.sinks.n, max(1 - sinks - (evidence or 0.0), 0.0), None, None)


def _draw(axes: Axes, content: Panel) -> None:
    lengths = [float(p.tokens) for series in content.series for p in series.points]
    house.token_axis(axes, house.with_air(*house.token_limits(lengths)), most=6)
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", ".5", "", "1"])
    axes.tick_params(labelsize=9)
    axes.grid(axis="y")
    axes.set_xlabel("tokens of the document", fontsize=9.5)
    axes.set_title(content.title, fontsize=10.5, pad=34)
    low, high = axes.get_xlim()
    if content.cap is not None and low <= content.cap <= high:
        axes.axvline(content.cap, color=house.INK, lw=1.3, ls=(0, (4, 2)), zorder=1.5)
        axes.annotate(
            f"safe cap {tokens(content.cap)}",
            (content.cap, axes.get_ylim()[1]),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8.5,
            color=house.INK,
        )
    for series in content.series:
        _line(axes, series)
    house.legend_above(axes, 1.05)


def _line(axes: Axes, series: Series) -> None:
    style = house.look(series.look)
    if series.band:
        x, low, high = zip(*series.band, strict=True)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.13, lw=0, zorder=1)
    for point in series.points:
        if point.low is not None and point.high is not None:
            ends = [point.low, point.high]
            axes.plot([point.tokens] * 2, ends, color=style.colour, lw=1.2, alpha=0.8, zorder=2)
    axes.plot(
        [point.tokens for point in series.points],
        [point.mean for point in series.points],
        label=house.drawable(series.name),
        color=style.colour,
        lw=1.3,
        ls=style.dash,
        marker=style.marker,
        ms=5,
        mec="white",
        mew=0.7,
        zorder=3,
        clip_on=False,
    )
