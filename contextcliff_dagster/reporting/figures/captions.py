"""The words of the picture: headline, subtitle, axis labels and what the marks mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures.style import (
    DPI,
    SOFT_INK,
    drawable,
    shortened,
    token_label,
    token_ticks,
)
from contextcliff_dagster.reporting.wording.number_format import level, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    labels,
    measured_range,
    score_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from contextcliff_dagster.contracts.results import Cliffs

_EDGE = 0.37
"""Inches between the picture's edge and its text."""


def axis_words(
    main: Axes, spread: Axes, results: Sequence[Cliffs], limits: tuple[float, float]
) -> None:
    """Ticks and labels of the shared length axis and of both panels' own axes."""
    ticks = token_ticks(*limits)
    for axes in (main, spread):
        axes.set_xticks(ticks)
        axes.set_xticklabels([])
    spread.set_xticklabels([token_label(t) for t in ticks])
    main.tick_params(axis="x", length=0)
    names = {score_name(r) for r in results}
    named = len(names) == 1 and names != {"score"}
    main.set_ylabel(f"score ({names.pop()})" if named else "score", fontsize=11.5)
    spread.set_ylabel("SD in bin", fontsize=11.5)
    for axes in (main, spread):
        axes.yaxis.set_label_coords(-0.055, 0.5)
    tokenizers = {r.tokenizer for r in results if r.tokenizer}
    by = f", {shortened(tokenizers.pop(), 40)} tokenizer" if len(tokenizers) == 1 else ""
    unit = ", 1k = 1,024" if limits[1] >= 1024 else ""
    spread.set_xlabel(
        f"natural length of the document in tokens (log scale{unit}{by})", fontsize=11.5
    )


def captions(
    figure: Figure,
    results: Sequence[Cliffs],
    height: float,
    *,
    has_answers: bool,
    hollow: bool,
) -> None:
    """Headline and subtitle at the top, the meaning of the marks at the bottom.

    ``height``: of the figure in inches. ``hollow``: a bin had to be drawn without an interval.
    """
    left = _EDGE / figure.get_figwidth()
    room = (figure.get_figwidth() - _EDGE) * DPI
    heading = figure.text(
        left, 1 - 0.36 / height, "", ha="left", va="center", fontsize=16, fontweight="bold"
    )
    _fit(heading, [headline(results, most) for most in (40, 28, 20, 14, 10)], (16, 14.5, 13), room)
    under = figure.text(
        left, 1 - 0.70 / height, "", ha="left", va="center", fontsize=11, color=SOFT_INK
    )
    _fit(under, [_subtitle(results, most) for most in (36, 22, 14)], (11, 10), room)
    confidence = level(results[0].confidence) if results else "unstated"
    lines = [f"Markers: mean of a bin at its median length, bars: its {confidence} interval."]
    if hollow:
        lines[0] += " Hollow markers: no interval supported."
    if any(r.curve for r in results):
        lines[0] += f" Line: fitted curve. Band: holds the whole curve at {confidence} confidence."
    if has_answers:
        lines.append(
            "Dots or columns: single answers; exact 1 above and exact 0 below the scale, spread or "
            "counted so that none hides another."
        )
    if any(b.sd is not None for r in results for b in r.bins):
        lines.append(
            "SD: standard deviation of the scores in a bin; no interval is computed for it."
        )
    else:
        lines.append("SD: standard deviation of the scores in a bin, unknown here.")
    for place, line in enumerate(lines):
        figure.text(
            left,
            (0.56 - 0.19 * place) / height,
            line,
            ha="left",
            va="center",
            fontsize=9.5,
            color=SOFT_INK,
        )


def _fit(text: Text, choices: Sequence[str], sizes: Sequence[float], room: float) -> None:
    """The first wording, at the first size, that ends before pixel ``room``."""
    for words in choices:
        for size in sizes:
            text.set_text(words)
            text.set_fontsize(size)
            if text.get_window_extent().x1 <= room:
                return


def headline(results: Sequence[Cliffs], most: int = 28) -> str:
    """The picture's finding in one line; names have at most ``most`` characters."""
    named = [
        (shortened(name, most), r.safe_cap_tokens)
        for name, r in zip(labels(results), results, strict=True)
    ]
    if not named:
        return "No result to show"
    if len(named) <= 2:
        said = [
            f"{name} up to {tokens(cap)} tokens"
            if cap is not None
            else f"no cap supported for {name}"
            for name, cap in named
        ]
        return f"Safe context: {', '.join(said)}"
    caps = sorted(cap for _, cap in named if cap is not None)
    if not caps:
        return f"{len(named)} models, no safe context cap supported"
    lacking = len(named) - len(caps)
    tail = f", {lacking} without" if lacking else ""
    return (
        f"Safe context of {len(named)} models: {tokens(caps[0])} to {tokens(caps[-1])} tokens{tail}"
    )


def _subtitle(results: Sequence[Cliffs], most: int) -> str:
    said = []
    for one, several, named in (
        ("study", "studies", {r.study for r in results}),
        ("task", "tasks", {r.task for r in results}),
        ("campaign", "campaigns", {r.campaign for r in results}),
    ):
        if values := sorted(name for name in named if name):
            key = one if len(values) == 1 else several
            said.append(f"{key} {shortened(', '.join(values), most)}")
    counts = sorted({r.n for r in results})
    if counts == [0] and any(measured_range(r) for r in results):
        said.append("means of unknown n")
    elif counts:
        span = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        said.append(f"{span} answers{' per model' if len(results) > 1 else ''}")
    documents = sorted({r.n_documents for r in results if r.n_documents is not None})
    if documents:
        span = (
            f"{documents[0]:,}" if len(documents) == 1 else f"{documents[0]:,} to {documents[-1]:,}"
        )
        said.append(f"{span} documents")
    return drawable(" · ".join(said))
