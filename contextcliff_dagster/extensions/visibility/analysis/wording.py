"""What the analysis says, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.wording.number_format import difference, score

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.results import (
        AxisEffect,
        OutcomeName,
        Plan,
        SearchComparison,
    )

_OUTCOMES: dict[OutcomeName, str] = {
    "regret": "regret",
    "area": "area under the curve of regret",
    "churn": "distance from step to step",
    "stagnation": "share of steps that repeat the step before",
    "oscillation": "share of steps that return to an earlier configuration",
    "novelty": "share of steps with a new configuration",
    "clamped_changes": "share of changes that met a bound",
    "unparsable_share": "share of replies that cannot be parsed",
    "fallback_share": "share of steps whose reply set nothing",
}
_AXES = {
    "task": "the text about the task",
    "metric": "the text about the metric",
    "resources": "the resources",
    "bounds": "the bounds",
    "direction": "the direction of the score",
}


def change_in_words(effect: AxisEffect) -> str:
    """What differs within a pair, as the subject of a sentence."""
    if effect.axis == "history":
        earlier = "no" if effect.reference == "0" else effect.reference
        return f"Listing {effect.level} earlier steps instead of {earlier}"
    if effect.axis == "base":
        return f"Going on from the {effect.level} configuration instead of the {effect.reference}"
    if effect.axis == "start":
        return f"Beginning with a {effect.level} start instead of a {effect.reference} one"
    what = _AXES[effect.axis]
    if effect.contrast == "length":
        return f"Another text as long as {what} instead of none"
    if effect.contrast == "content":
        return f"Showing {what} instead of another text as long"
    return f"Showing {what}"


def effect_sentence(effect: AxisEffect, margin: float) -> str:
    """The effect on regret or area with its verdict; of behaviour only what is significant."""
    subject, name = change_in_words(effect), _OUTCOMES[effect.outcome]
    if effect.difference is None:
        return f"{subject}: no two runs could be compared."
    by = f"{difference(effect.difference)} [{_interval(effect)}]"
    if effect.verdict in ("better", "worse", "higher", "lower"):
        less = effect.verdict in ("better", "lower")
        tested = f"p {effect.p_holm:.3f} after Holm" if effect.p_holm is not None else ""
        return f"{subject} {'lowers' if less else 'raises'} the {name}: {by}, {tested}."
    if effect.verdict == "no_benefit":
        return (
            f"{subject} does not help: a benefit of {margin:g} or more is excluded ({name} {by}, "
            f"limit of the benefit {score(effect.excluded)})."
        )
    return (
        f"{subject}: undecided; neither an effect on the {name} nor the absence of a benefit of "
        f"{margin:g} is shown ({by})."
    )


def plan_sentence(plan: Sequence[Plan], undecided: Sequence[AxisEffect]) -> str | None:
    """Seeds that would show every undecided effect of .2 SD; None where nothing is undecided."""
    open_ones = {(one.axis, one.level, one.reference) for one in undecided}
    rows = [one for one in plan if (one.axis, one.level, one.reference) in open_ones]
    if not rows:
        return None
    first = rows[0]
    what = f"an effect of {first.effect:g} SD of the regret with power {first.power:g}"
    if any(one.seeds_needed is None for one in rows):
        return f"To show {what} where it is undecided, more than 10,000 seeds would be needed."
    most = max(one.seeds_needed or 0 for one in rows)
    return (
        f"To show {what} where it is undecided, up to {most:,} seeds a benchmark are needed; this "
        f"study has {first.seeds:,}."
    )


def search_sentence(regret: float, searches: Sequence[SearchComparison]) -> str | None:
    """The model next to searches without one."""
    if not searches:
        return None
    others = ", ".join(f"{one.name.replace('_', ' ')} {score(one.regret)}" for one in searches)
    return (
        f"Over all runs the model leaves a regret of {score(regret)}; searches without a model on "
        f"the same splits, starts and steps: {others}."
    )


def _interval(effect: AxisEffect) -> str:
    if effect.ci_low is None:
        return "no interval"
    return f"{difference(effect.ci_low)}, {difference(effect.ci_high)}"
