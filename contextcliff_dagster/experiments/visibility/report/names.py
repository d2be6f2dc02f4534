"""Axes, levels, outcomes and searches as a report names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.visibility.results import (
    AxisEffect,
    EffectVerdict,
    OutcomeName,
)

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.visibility.results import (
        Interaction,
        Plan,
        VisibilityResult,
    )

AXIS_NAMES: Mapping[str, str] = {
    "task": "task text",
    "metric": "metric text",
    "resources": "resources",
    "bounds": "bounds",
    "direction": "direction of the score",
    "history": "history",
    "base": "on from",
    "start": "start",
}
OUTCOME_NAMES: Mapping[OutcomeName, str] = {
    "regret": "regret after the last step",
    "area": "area under the curve of regret",
    "churn": "churn",
    "stagnation": "stagnation",
    "oscillation": "oscillation",
    "novelty": "novelty",
    "clamped_changes": "clamped changes",
    "unparsable_share": "unparsable steps",
    "fallback_share": "fallback steps",
}
BEHAVIOUR: tuple[OutcomeName, ...] = tuple(OUTCOME_NAMES)[2:]
_CONTENT, _LENGTH = "Content of a text: shown less placebo", "Mere length: placebo less hidden"
_MORE, _COURSE = "More is shown", "Course of the run"
GROUPS = (_MORE, _CONTENT, _LENGTH, _COURSE)
"""Of comparisons, in the order of a picture and a table."""
VERDICT_WORDS: Mapping[EffectVerdict, str] = {
    "better": "less regret",
    "worse": "more regret",
    "no_benefit": "no benefit",
    "higher": "higher",
    "lower": "lower",
    "undecided": "undecided",
}
SEARCH_NAMES: Mapping[str, str] = {
    "random": "random points",
    "sobol": "Sobol points",
    "tpe": "TPE",
    "hill_climb": "hill climber",
}


def level_name(axis: str, level: str) -> str:
    """A level in words: a history is of so many steps."""
    if axis != "history":
        return level
    return "none" if level == "0" else f"{level} step{'' if level == '1' else 's'}"


def effect_name(effect: AxisEffect | Interaction | Plan) -> str:
    """What differs within a pair, as `comparison_name`."""
    return comparison_name(effect.axis, effect.level, effect.reference)


def comparison_name(axis: str, level: str, reference: str) -> str:
    """A level and its reference: ``bounds shown``, ``history of 5 steps``, ``low start, not high``.

    A reference that is nothing, hidden or no history, goes without saying.
    """
    name = AXIS_NAMES.get(axis, axis)
    if axis == "history":
        other = "" if reference == "0" else f", not {reference}"
        return f"history of {level_name(axis, level)}{other}"
    if axis == "base":
        return f"on from the {level} configuration, not the {reference} one"
    if axis == "start":
        return f"{level} start, not {reference}"
    if level == "placebo":
        return f"a placebo of the {name}"
    return f"{name}, not its placebo" if reference == "placebo" else f"{name} shown"


def group_of(effect: AxisEffect) -> str:
    """The one of `GROUPS` that a comparison is in."""
    if effect.contrast == "level":
        return _MORE if effect.axis == "history" else _COURSE
    return {"shown": _MORE, "content": _CONTENT, "length": _LENGTH}[effect.contrast]


def shows_more(effect: AxisEffect) -> bool:
    """Whether the level shows more of something than the reference; a placebo shows nothing."""
    return group_of(effect) in (_MORE, _CONTENT)


def varied_axes(result: VisibilityResult) -> list[str]:
    """The axes that have more than one level."""
    return [axis for axis, levels in result.levels.items() if len(levels) > 1]


def is_significant(effect: AxisEffect | Interaction, confidence: float) -> bool:
    """Whether it is significant after Holm's adjustment."""
    # A confidence of 0.95 leaves 0.050000000000000044.
    return effect.p_holm is not None and effect.p_holm <= round(1.0 - confidence, 9)
