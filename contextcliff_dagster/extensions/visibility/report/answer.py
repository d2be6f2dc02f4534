"""The answer of a result in a few sentences, and what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.extensions.visibility.report.names import (
    SEARCH_NAMES,
    effect_name,
    joined,
    shows_more,
)
from contextcliff_dagster.extensions.visibility.report.tables import (
    fallback_share,
    unparsable_share,
)
from contextcliff_dagster.reporting.wording.number_format import count, difference, percent, score

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.results import VisibilityResult


def answer_sentences(result: VisibilityResult) -> list[str]:
    """Whether showing more helps; what the runs reach, next to the best search without a model."""
    found = [_verdict(result), _reached(result)]
    return [sentence for sentence in found if sentence]


def _verdict(result: VisibilityResult) -> str:
    regret = [one for one in result.effects if one.outcome == "regret" and shows_more(one)]
    named = {
        word: joined(
            [
                f"{effect_name(one)} ({difference(one.difference)})"
                for one in regret
                if one.verdict == word
            ]
        )
        for word in ("better", "worse")
    }
    if not regret:
        return ""
    if result.verdict == "helps":
        return f"Showing more helps: the regret is less with {named['better']}."
    if result.verdict == "harms":
        return f"Showing more harms: the regret is more with {named['worse']}."
    if result.verdict == "mixed":
        return (
            f"Some of what is shown helps, some harms: the regret is less with {named['better']}, "
            f"more with {named['worse']}."
        )
    if result.verdict == "no_benefit":
        return (
            f"Showing more does not help: of every axis a benefit of {result.margin:g} or more is "
            "excluded."
        )
    return (
        "Whether showing more helps is undecided: no axis is shown to change the regret, and a "
        f"benefit of {result.margin:g} is not excluded of each."
    )


def _reached(result: VisibilityResult) -> str:
    everything = next((one for one in result.curves if one.axis is None), None)
    if everything is None:
        return ""
    start, end = everything.points[0].regret, everything.points[-1].regret
    runs = "The run" if everything.n_runs == 1 else f"{everything.n_runs:,} runs"
    reached = f"{runs} went from a regret of {score(start)} to {score(end)} in "
    reached += count(result.steps, "step")
    if not result.searches:
        return f"{reached}."
    best = score(min(one.regret for one in result.searches))
    names = [
        SEARCH_NAMES.get(one.name, one.name) for one in result.searches if score(one.regret) == best
    ]
    return f"{reached}; of the searches without a model the best reach {best} ({joined(names)})."


def fallback_sentence(result: VisibilityResult) -> str:
    """How many steps are not the model's, and how many replies could not be read."""
    share, unreadable = fallback_share(result), unparsable_share(result)
    steps = result.n_runs * result.steps
    if share is None or not steps:
        return "No run is whole, so there are no steps to count."
    if share >= 1:
        return (
            f"No reply of {count(steps, 'step')} set a parameter: nothing here is the model's "
            f"search ({percent(unreadable)} of the replies could not be read)."
        )
    if not share:
        return f"Every reply set a parameter: none of {count(steps, 'step')} is a fallback."
    return (
        f"{percent(share)} of {count(steps, 'step')} are fallbacks, whose reply set nothing; "
        f"{percent(unreadable)} of the replies could not be read."
    )
