"""Names of axes, levels, measures, verdicts and parameter values in the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from contextcliff_dagster.extensions.visibility.results import (
    AxisEffect,
    EffectVerdict,
    Interaction,
    OutcomeName,
    Plan,
    VisibilityResult,
)
from contextcliff_dagster.extensions.visibility.tasks.task import Config, Score

AXIS_NAMES: Mapping[str, str] = {
    "task": "task text",
    "metric": "metric text",
    "resources": "resources",
    "bounds": "bounds",
    "direction": "direction of the score",
    "history": "history",
    "base": "base configuration",
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
_CONTENT, _LENGTH = "Content of a text: shown minus placebo", "Length: placebo minus hidden"
_MORE, _COURSE = "More is shown", "Course of the run"
GROUPS = (_MORE, _CONTENT, _LENGTH, _COURSE)
"""Groups of comparisons, in the order of pictures and tables."""
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
    """Return a level in words; for a history, the number of steps."""
    if axis != "history":
        return level
    return "none" if level == "0" else f"{level} step{'' if level == '1' else 's'}"


def effect_name(effect: AxisEffect | Interaction | Plan) -> str:
    """Return the name of an effect's comparison; see `comparison_name`."""
    return comparison_name(effect.axis, effect.level, effect.reference)


def comparison_name(axis: str, level: str, reference: str) -> str:
    """Return a level with its reference: ``bounds shown``, ``low start, not high``.

    The reference is omitted if it shows nothing, as in ``history of 5 steps``.
    """
    name = AXIS_NAMES.get(axis, axis)
    if axis == "history":
        contrast = "" if reference == "0" else f", not {reference}"
        return f"history of {level_name(axis, level)}{contrast}"
    if axis == "base":
        return f"steps from the {level} configuration, not the {reference} one"
    if axis == "start":
        return f"{level} start, not {reference}"
    if level == "placebo":
        return f"a placebo of the {name}"
    return f"{name}, not its placebo" if reference == "placebo" else f"{name} shown"


def group_of(effect: AxisEffect) -> str:
    """Return the entry of `GROUPS` to which a comparison belongs."""
    if effect.contrast == "level":
        return _MORE if effect.axis == "history" else _COURSE
    return {"shown": _MORE, "content": _CONTENT, "length": _LENGTH}[effect.contrast]


def shows_more(effect: AxisEffect) -> bool:
    """Return whether the level shows more than the reference; a placebo shows nothing."""
    return group_of(effect) in (_MORE, _CONTENT)


def behaviour_rows(result: VisibilityResult) -> list[dict[OutcomeName, AxisEffect]]:
    """Return each comparison's measured effects on behaviour, by measure."""
    rows: dict[tuple[str, str, str], dict[OutcomeName, AxisEffect]] = {}
    for e in result.effects:
        if e.outcome in BEHAVIOUR and e.difference is not None:
            rows.setdefault((e.axis, e.level, e.reference), {})[e.outcome] = e
    return list(rows.values())


def is_significant(effect: AxisEffect | Interaction, confidence: float) -> bool:
    """Return whether an effect is significant after Holm's adjustment."""
    # A confidence of 0.95 leaves 0.050000000000000044.
    return effect.p_holm is not None and effect.p_holm <= round(1.0 - confidence, 9)


_DIGITS = (3, 5, 8, 17)
_MOST = 32


def value_words(value: Any, digits: int = 3) -> str:
    """Format a value for text: ``0.1``, ``1,000``, ``"abc"``. Long strings are truncated."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _MOST else f'{text[: _MOST - 2]}…"'
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**7 else f"{value:.3g}"
    if not value or 1e-4 <= abs(value) < 1e7:
        return _grouped(value, digits)
    return f"{value:.{digits}g}"


def _grouped(value: float, digits: int) -> str:
    digits_before = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    exponent = int(f"{value:e}".partition("e")[2])
    after = max(0, digits - digits_before) if digits_before else digits - 1 - exponent
    text = f"{value:,.{min(after, 20)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def choice_words(value: Any) -> str:
    """Format the value of a choice parameter, without quotation marks."""
    return value if isinstance(value, str) else value_words(value)


def change_words(before: Any, after: Any) -> tuple[str, str]:
    """Format two different values with enough digits to distinguish them.

    >>> change_words(0.1, 0.10001)
    ('0.1', '0.10001')
    """
    if isinstance(before, str | bool):
        return choice_words(before), choice_words(after)
    for digits in _DIGITS:
        first, second = value_words(before, digits), value_words(after, digits)
        if first != second:
            return first, second
    return repr(before), repr(after)


def config_words(config: Config) -> str:
    """Format a configuration, sorted by parameter name: ``C 0.1, max_iter 300``."""
    return ", ".join(f"{name} {choice_words(config[name])}" for name in sorted(config))


def score_words(value: float | None, score: Score) -> str:
    """Format a score: with three decimals, or with four digits if it is an error or at least 10."""
    if value is None:
        return "none"
    return f"{value:,.4g}" if score.relative or abs(value) >= 10 else f"{value:.3f}"
