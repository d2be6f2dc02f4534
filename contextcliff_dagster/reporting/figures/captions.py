"""Text of the report figure: headline, subtitle, axis labels and the meaning of the marks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.wording import (
    labels,
    length_axis,
    level,
    measured_range,
    score_name,
    tokens,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from contextcliff_dagster.contracts.results import Cliffs

_EDGE = 0.37
"""Margin between the picture's edge and its text, in inches."""
_NAMES = (40, 28, 20, 14, 10)
"""Most characters of a model's name, longest first: the first that fits is taken."""


def axis_words(
    main: Axes, spread: Axes, results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    """Label the shared length axis and the y axes of both panels."""
    main.tick_params(axis="x", length=0, labelbottom=False)
    main.set_ylabel(_score_label(results), fontsize=11.5)
    spread.set_ylabel("SD in bin", fontsize=11.5)
    for axes in (main, spread):
        axes.yaxis.set_label_coords(-0.055, 0.5)
    spread.set_xlabel(_length_label(results, limits), fontsize=11.5)


def single_axis_words(axes: Axes, results: Sequence[Cliffs], limits: tuple[float, float]) -> None:
    """Label a lone score panel: its axes, and a title or, for several models, a legend above it.

    Texts have the style's size and are shortened until they are no wider than the axes.
    """
    room, length = axes.get_window_extent().width, _length_label(results, limits)
    axes.set_ylabel(_score_label(results), fontsize="medium")
    _fit(axes.set_xlabel(""), [length, length.partition(" (")[0]], ["medium"], room)
    caps = [_cap_words(r.safe_cap_tokens) for r in results]
    lines = [
        [f"{house.shortened(n, most)}: {c}" for n, c in zip(labels(results), caps, strict=True)]
        for most in _NAMES
    ]
    if len(results) == 1:
        titles = [headline(results, _NAMES[0]), *(title for (title,) in lines)]
        _fit(axes.set_title(""), titles, ["large", "medium"], room)
        return
    look: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    look |= {"frameon": False, "fontsize": "small", "markerscale": 0.7, "columnspacing": 1.2}
    for words, columns in product(lines, (2, 1) if len(results) > 3 else (1,)):
        legend = axes.legend(handles=house.line_handles(words), ncols=columns, **look)
        if legend.get_window_extent().width <= room:
            return


def _cap_words(cap: int | None) -> str:
    return "no cap" if cap is None else f"safe up to {tokens(cap)}"


def _score_label(results: Sequence[Cliffs]) -> str:
    names = {score_name(r) for r in results}
    has_name = len(names) == 1 and names != {"score"}
    return f"score ({names.pop()})" if has_name else "score"


def _length_label(results: Sequence[Cliffs], limits: tuple[float, float]) -> str:
    tokenizers = {r.tokenizer for r in results if r.tokenizer}
    by = f", {house.shortened(tokenizers.pop(), 40)} tokenizer" if len(tokenizers) == 1 else ""
    unit = ", 1k = 1,024" if limits[1] >= 1024 else ""
    return f"{length_axis(results)} (log scale{unit}{by})"


def captions(figure: Figure, results: Sequence[Cliffs], *, has_answers: bool, hollow: bool) -> None:
    """Write headline and subtitle at the top, and the meaning of the marks at the bottom.

    ``hollow``: whether any bin is drawn without an interval.
    """
    wide, height = figure.get_size_inches()
    room = (wide - 2 * _EDGE) * house.DPI
    heading = house.write(figure, _EDGE, height - 0.36, "", fontweight="bold")
    _fit(heading, [headline(results, most) for most in _NAMES], (16, 14.5, 13), room)
    under = house.write(figure, _EDGE, height - 0.70, "", color=house.SOFT_INK)
    _fit(under, [_subtitle(results, most) for most in (36, 22, 14)], (11, 10), room)
    confidence = level(results[0].confidence) if results else "unstated"
    lines = [f"Markers: mean of a bin at its median length, bars: its {confidence} interval."]
    if hollow:
        lines[0] += " Hollow markers: no interval supported."
    if any(r.curve for r in results):
        lines[0] += f" Line: fitted curve. Band: its {confidence} interval at each length."
    if has_answers:
        lines.append(
            "Dots or columns: single answers; exact 1 above and exact 0 below the scale, spread or "
            "counted so that none hides another."
        )
    has_sd = any(b.sd is not None for r in results for b in r.bins)
    why = "; no interval is computed for it." if has_sd else ", unknown here."
    lines.append(f"SD: standard deviation of the scores in a bin{why}")
    if any(b.delivered_mean is not None for r in results for b in r.bins):
        lines[-1] += " Crosses: mean if each missing answer scores 0."
    for place, line in enumerate(lines):
        house.write(figure, _EDGE, 0.56 - 0.19 * place, line, fontsize=9.5, color=house.SOFT_INK)


def _fit(text: Text, choices: Sequence[str], sizes: Sequence[float | str], room: float) -> None:
    """Set the text to the first of ``choices`` that is at most ``room`` pixels wide in a size."""
    for words in choices:
        for size in sizes:
            text.set_text(words)
            text.set_fontsize(size)
            if text.get_window_extent().width <= room:
                return


def headline(results: Sequence[Cliffs], most: int) -> str:
    """Return the picture's finding in one line; names get at most ``most`` characters."""
    count, all_caps = len(results), [r.safe_cap_tokens for r in results]
    caps = sorted(cap for cap in all_caps if cap is not None)
    if not results:
        return "No result to show"
    if count <= 2:
        names = [house.shortened(name, most) for name in labels(results)]
        parts = [
            f"no cap supported for {name}" if cap is None else f"{name} up to {tokens(cap)} tokens"
            for name, cap in zip(names, all_caps, strict=True)
        ]
        return f"Safe context: {', '.join(parts)}"
    if not caps:
        return f"{count} models, no safe context cap supported"
    tail = f", {count - len(caps)} without" if len(caps) < count else ""
    return f"Safe context of {count} models: {tokens(caps[0])} to {tokens(caps[-1])} tokens{tail}"


def _subtitle(results: Sequence[Cliffs], most: int) -> str:
    parts = []
    for singular, plural, names in (
        ("study", "studies", {r.study for r in results}),
        ("task", "tasks", {r.task for r in results}),
        ("campaign", "campaigns", {r.campaign for r in results}),
    ):
        if values := sorted(name for name in names if name):
            key = singular if len(values) == 1 else plural
            parts.append(f"{key} {house.shortened(', '.join(values), most)}")
    counts = {r.n for r in results}
    if counts == {0} and any(measured_range(r) for r in results):
        parts.append("means of unknown n")
    elif counts:
        parts.append(f"{_span(counts)} answers{' per model' if len(results) > 1 else ''}")
    if documents := {r.n_documents for r in results if r.n_documents is not None}:
        parts.append(f"{_span(documents)} documents")
    return house.drawable(" · ".join(parts))


def _span(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
