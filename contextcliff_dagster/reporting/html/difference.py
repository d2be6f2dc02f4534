"""The difference of two measurements over length as a picture that needs no script."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.html.picture import FOOT, HEIGHT, LEFT, RIGHT, TOP, WIDTH, look

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Comparison


def difference_html(comparison: Comparison) -> str:
    """B minus A: the smoothed difference with its band, bins with intervals, named on hover."""
    bins = [b for b in comparison.bins if b.difference is not None]
    edges = [float(max(edge, 1)) for b in comparison.bins for edge in (b.edge_low, b.edge_high)]
    low, high = house.with_air(*house.token_limits(edges))
    ends = [0.1, *(end for p in comparison.curve for end in (p.ci_low, p.ci_high))]
    ends += [end for b in bins for end in (b.ci_low, b.ci_high, b.difference) if end is not None]
    most = max(map(abs, ends)) * 1.05

    def x(tokens: float) -> float:
        return LEFT + log(max(tokens, 1.0) / low) / log(high / low) * (RIGHT - LEFT)

    def y(value: float) -> float:
        return (FOOT + TOP) / 2 - value / most * (FOOT - TOP) / 2

    step = next(size for size in (0.05, 0.1, 0.25, 0.5, 1.0) if most / size < 5)
    parts = ['<g class="grid" aria-hidden="true">']
    for value in (k * step for k in range(-4, 5) if abs(k * step) <= most):
        at, label = y(value), f"{value:+.2g}".replace("0.", ".") if value else "0"
        parts.append(f'<path d="M{LEFT:g} {at:.1f}H{RIGHT:g}"/>')
        parts.append(f'<text x="{LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for tokens in house.token_ticks(low, high):
        at, label = x(tokens), house.token_label(tokens)
        parts.append(f'<path d="M{at:.1f} {FOOT + 4:g}v5"/>')
        parts.append(f'<text x="{at:.1f}" y="{FOOT + 23:g}" text-anchor="middle">{label}</text>')
    axis = "document length in tokens, log scale"
    parts.append(f'<text x="{RIGHT:g}" y="{HEIGHT - 4:g}" text-anchor="end">{axis}</text></g>')
    parts.append(f'<g class="{look(1).style}">')
    if curve := comparison.curve:
        up = [f"{x(p.tokens):.1f} {y(p.ci_high):.1f}" for p in curve]
        down = [f"{x(p.tokens):.1f} {y(p.ci_low):.1f}" for p in reversed(curve)]
        line = "L".join(f"{x(p.tokens):.1f} {y(p.difference):.1f}" for p in curve)
        parts.append(f'<path class="band" d="M{"L".join([*up, *down])}z"/>')
        parts.append(f'<path class="curve" d="M{line}"/>')
    for b in bins:
        at = x((max(b.edge_low, 1) * b.edge_high) ** 0.5)
        words = f"{b.bin}: {b.edge_low:,} to {b.edge_high:,} tokens, B minus A {b.difference:+.2f}"
        interval = ""
        if b.ci_low is not None and b.ci_high is not None:
            words += f" [{b.ci_low:+.2f}, {b.ci_high:+.2f}]"
            span = f"M{at:.1f} {y(b.ci_low):.1f}V{y(b.ci_high):.1f}"
            interval = f'<path class="interval" d="{span}"/>'
        place = f"translate({at:.1f} {y(b.difference or 0):.1f})"
        mark = f'<path class="mark" d="{look(1).mark}" transform="{place}"/>'
        sure = b.p_value is not None and b.p_value <= 1.0 - comparison.confidence
        kind = "" if sure else ' class="bare"'
        parts.append(f"<g{kind}><title>{text(words)}</title>{interval}{mark}</g>")
    how = "the same examples" if comparison.paired else "different documents"
    note = (
        f"Mean score of B minus that of A, on {how}. Band: for all lengths at once. Filled: "
        "significant among all bins together."
    )
    return (
        "<section><h2>Difference over document length</h2>\n<figure>"
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{text(note)}">'
        f"{''.join(parts)}</g></svg></figure>\n<p>{text(note)}</p></section>\n"
    )
