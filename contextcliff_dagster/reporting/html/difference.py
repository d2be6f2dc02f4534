"""The difference of two measurements over length as a picture that needs no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.html.picture import HEIGHT, WIDTH, Plane, look

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Comparison


def difference_html(comparison: Comparison) -> str:
    """B minus A: the smoothed difference with its band, bins with intervals, named on hover."""
    bins = [b for b in comparison.bins if b.difference is not None]
    edges = [float(max(edge, 1)) for b in comparison.bins for edge in (b.edge_low, b.edge_high)]
    ends = [0.1, *(end for p in comparison.curve for end in (p.ci_low, p.ci_high))]
    ends += [end for b in bins for end in (b.ci_low, b.ci_high, b.difference) if end is not None]
    plane, own = Plane(edges, most=max(map(abs, ends)) * 1.05), look(1)
    parts = [plane.grid(), f'<g class="{own.style}">']
    parts.append(plane.band([(p.tokens, p.ci_low, p.ci_high) for p in comparison.curve]))
    parts.append(plane.curve([(p.tokens, p.difference) for p in comparison.curve]))
    for b in bins:
        at = plane.x((max(b.edge_low, 1) * b.edge_high) ** 0.5)
        words = f"{b.bin}: {b.edge_low:,} to {b.edge_high:,} tokens, B minus A {b.difference:+.2f}"
        if b.ci_low is not None and b.ci_high is not None:
            words += f" [{b.ci_low:+.2f}, {b.ci_high:+.2f}]"
        drawn = plane.mark(own, at, b.difference or 0.0, (b.ci_low, b.ci_high))
        sure = b.p_value is not None and b.p_value <= 1.0 - comparison.confidence
        kind = "" if sure else ' class="bare"'
        parts.append(f"<g{kind}><title>{text(words)}</title>{drawn}</g>")
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
