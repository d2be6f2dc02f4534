"""A comparison in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import DROPS, Verdict

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Comparison


def sentence(result: Comparison) -> str:
    """The comparison in one sentence."""
    a, b, overall = result.a.name, result.b.name, result.overall
    alpha = 1.0 - result.confidence
    difference = overall.difference
    span = f"{overall.ci_low or 0:+.2f} to {overall.ci_high or 0:+.2f}"
    sure = [row for row in result.bins if row.p_value is not None and row.p_value <= alpha]
    lower, higher = (
        ", ".join(row.bin for row in sure if sign * (row.difference or 0) > 0) for sign in (-1, 1)
    )
    if difference is None:
        sentence = f"{b} and {a} have no length bin in common, so their scores are not compared"
    elif overall.p_value is not None and overall.p_value <= alpha:
        sentence = f"{b} scores {'lower' if difference < 0 else 'higher'} than {a} by "
        sentence += f"{abs(difference):.2f} on average ({span}, p = {overall.p_value:.2g})"
        same, reverse = (lower, higher) if difference < 0 else (higher, lower)
        sentence += f", significantly so in {same}" if same else ""
        sentence += f", and significantly the reverse in {reverse}" if reverse else ""
    elif sure:
        sentence = f"{b} and {a} differ at some lengths (overall {difference:+.2f}, {span}): {b} "
        parts = [f"scores lower in {lower}"] * bool(lower)
        parts += [f"scores higher in {higher}"] * bool(higher)
        sentence += " and ".join(parts)
    else:
        sentence = f"No difference detected between {b} and {a} (overall {difference:+.2f}, {span})"
    shift = result.loss_shift
    shown = [
        side
        for side, at in ((result.a, shift.a_tokens), (result.b, shift.b_tokens))
        if (at is not None if side.verdict is None else side.verdict in DROPS)
    ]
    own = " from its own baseline" if result.kv is not None else ""
    drop = f"a drop of {result.tolerance:.0%}{own}"
    floor = [side.name for side in (result.a, result.b) if side.verdict == Verdict.FLOOR.value]
    if floor:
        sentence += f"; no shift of the drop is measured, since {' and '.join(floor)} "
        sentence += f"{'has' if len(floor) == 1 else 'have'} nothing to lose at any length"
    elif not shown:
        sentence += f"; neither shows {drop} within the measured lengths"
    elif len(shown) == 1:
        sentence += f"; only {shown[0].name} shows a drop with length"
    elif shift.ratio is None or not shift.is_bounded:
        sentence += f"; whether {drop} comes earlier or later is open"
    else:
        low, high = (f"{v:.2f}" if v else "open" for v in (shift.ci_low, shift.ci_high))
        sentence += (
            f"; {drop} is reached at {shift.b_tokens:,} tokens instead of "
            f"{shift.a_tokens:,} (ratio {shift.ratio:.2f}, {low} to {high})"
        )
    return sentence + "."
