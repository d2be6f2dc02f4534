"""Tables of the report on visibility.

The answer of a result in a few sentences, and what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.visibility.report.names import (
    AXIS_NAMES,
    BEHAVIOUR,
    GROUPS,
    OUTCOME_NAMES,
    SEARCH_NAMES,
    VERDICT_WORDS,
    comparison_name,
    effect_name,
    group_of,
    joined,
    level_name,
    shows_more,
    varied_axes,
)
from contextcliff_dagster.reporting.sections import Bracketed, Cell, Code, DataTable
from contextcliff_dagster.reporting.wording import (
    count,
    difference,
    level,
    p_value,
    percent,
    score,
    with_limits,
)

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.visibility.results import (
        AxisEffect,
        OutcomeName,
        VisibilityResult,
    )
    from contextcliff_dagster.extensions.visibility.results import Cell as Combination


MOST_CELLS = 48
"""Of more combinations a table has those with the least and the most regret."""


def models(results: Sequence[VisibilityResult]) -> DataTable:
    """Each model in a line."""
    rows: list[list[Cell]] = []
    for result in results:
        last = next((one.points[-1] for one in result.curves if one.axis is None), None)
        regret = None if last is None else _span(last.regret, last.ci_low, last.ci_high)
        verdict = result.verdict.replace("_", " ")
        fallback = percent(fallback_share(result), "no step")
        rows.append([Code(result.model), verdict, result.n_runs, regret, fallback])
    columns = ["model", "showing more", "runs", "regret after the last step", "fallback steps"]
    return DataTable(columns, rows, "Each model, over all of its runs", right=())


def effects(result: VisibilityResult, outcome: OutcomeName) -> DataTable | None:
    """Every comparison on one outcome, grouped as in the picture; None without any."""
    found = [one for one in result.effects if one.outcome == outcome]
    if not found:
        return None
    rows: list[list[Cell]] = [
        [
            effect_name(one),
            f"{one.n_pairs:,} ({one.n_clusters:,})",
            score(one.mean),
            score(one.mean_reference),
            Bracketed(with_limits(one.difference, one.ci_low, one.ci_high)),
            p_value(one.p_value),
            p_value(one.p_holm),
            None if one.standardised is None else f"{one.standardised:+.2f}",
            None if one.excluded is None else difference(one.excluded),
            VERDICT_WORDS[one.verdict],
        ]
        for one in sorted(found, key=lambda one: GROUPS.index(group_of(one)))
    ]
    columns = [
        *("comparison", "pairs (benchmark-seeds)", "mean", "reference", "difference"),
        *("p", "p, Holm", "in SD", "benefit excluded from", "verdict"),
    ]
    name = OUTCOME_NAMES[outcome]
    caption = (
        f"{name[0].upper()}{name[1:]}: pairs of runs equal in all else, {level(result.confidence)} "
        "intervals over benchmark-seeds; below 0 the level is better"
    )
    return DataTable(columns, rows, caption, right=())


def by_benchmark(result: VisibilityResult) -> DataTable | None:
    """The same differences of the regret on each benchmark; None with fewer than two."""
    if len(result.benchmarks) < 2:
        return None
    rows: list[list[Cell]] = []
    for one in result.effects:
        if one.outcome != "regret" or one.difference is None:
            continue
        own = {part.benchmark: part for part in one.by_benchmark}
        cells: list[Cell] = [
            None
            if part is None
            else Bracketed(with_limits(part.difference, part.ci_low, part.ci_high))
            for part in (own.get(name) for name in result.benchmarks)
        ]
        rows.append([effect_name(one), *cells])
    if not rows:
        return None
    columns = ["comparison", *result.benchmarks]
    caption = "Difference of the regret on each benchmark, intervals over seeds; no test"
    return DataTable(columns, rows, caption, right=())


def behaviour(result: VisibilityResult) -> DataTable | None:
    """Effects on behaviour with their intervals; None without any."""
    by_row: dict[tuple[str, str, str], dict[OutcomeName, AxisEffect]] = {}
    for one in result.effects:
        if one.outcome in BEHAVIOUR and one.difference is not None:
            by_row.setdefault((one.axis, one.level, one.reference), {})[one.outcome] = one
    rows: list[list[Cell]] = [
        [
            effect_name(next(iter(effects.values()))),
            *(_marked(effects.get(outcome)) for outcome in BEHAVIOUR),
        ]
        for effects in by_row.values()
    ]
    if not rows:
        return None
    caption = (
        f"Differences of behaviour with {level(result.confidence)} intervals; the verdict in words "
        "where one is significant after Holm over all of them"
    )
    columns = ["comparison", *(OUTCOME_NAMES[outcome] for outcome in BEHAVIOUR)]
    return DataTable(columns, rows, caption, right=())


def _marked(effect: AxisEffect | None) -> Cell:
    if effect is None:
        return None
    words = Bracketed(with_limits(effect.difference, effect.ci_low, effect.ci_high))
    if effect.verdict == "undecided" or words is None:
        return words
    return Bracketed(f"{words.text} {VERDICT_WORDS[effect.verdict]}")


def combinations(result: VisibilityResult) -> DataTable | None:
    """Means of each combination, least regret first; None with a single one."""
    if len(result.cells) < 2:
        return None
    ranked = sorted(result.cells, key=lambda one: (_known_first(one), one.signature))
    shown = ranked
    if len(ranked) > MOST_CELLS:
        shown = [*ranked[: MOST_CELLS // 2], *ranked[-MOST_CELLS // 2 :]]
    axes = varied_axes(result)
    names: tuple[OutcomeName, ...] = ("regret", "area", *BEHAVIOUR)
    rows: list[list[Cell]] = [
        [
            *(level_name(axis, one.levels[axis]) for axis in axes),
            one.n_runs,
            *(score(one.means.get(name), "–") for name in names),
        ]
        for one in shown
    ]
    some = f"{MOST_CELLS} of {len(ranked):,}, those with the least and the most regret"
    of = some if len(shown) < len(ranked) else f"all {len(ranked):,}"
    columns = [
        *(AXIS_NAMES.get(axis, axis) for axis in axes),
        "runs",
        *(OUTCOME_NAMES[name] for name in names),
    ]
    caption = f"Combinations of levels, means over runs, least regret first: {of}"
    return DataTable(columns, rows, caption, right=())


def _known_first(one: Combination) -> tuple[bool, float]:
    regret = one.means.get("regret")
    return regret is None, regret or 0.0


def interactions(result: VisibilityResult) -> DataTable | None:
    """Effects that may depend on another axis; None without any."""
    rows: list[list[Cell]] = [
        [
            effect_name(one),
            comparison_name(one.other, one.other_level, one.other_reference),
            f"{one.n_fours:,} ({one.n_clusters:,})",
            Bracketed(with_limits(one.difference, one.ci_low, one.ci_high)),
            p_value(one.p_value),
            p_value(one.p_holm),
        ]
        for one in result.interactions
    ]
    if not rows:
        return None
    columns = [
        *("effect of", "with", "fours of runs (benchmark-seeds)"),
        *("difference of the differences", "p", "p, Holm"),
    ]
    caption = (
        "How much an effect on the regret changes with another axis: below 0 it lowers the regret "
        "more there"
    )
    return DataTable(columns, rows, caption, right=())


def searches(result: VisibilityResult) -> DataTable | None:
    """The model next to searches without one; None without any."""
    rows: list[list[Cell]] = [
        [
            SEARCH_NAMES.get(one.name, one.name),
            one.n_clusters,
            score(one.regret),
            score(one.area),
            Bracketed(with_limits(one.difference, one.ci_low, one.ci_high)),
        ]
        for one in result.searches
    ]
    if not rows:
        return None
    columns = ["search", "benchmark-seeds", "its regret", "its area", "model less search"]
    caption = (
        "Searches without a model, on the same splits, starts and budget; difference of the regret "
        "after the last step, below 0 the model is better; no test"
    )
    return DataTable(columns, rows, caption, right=())


def plan(result: VisibilityResult) -> DataTable | None:
    """Seeds that each effect needs; None where nothing is known."""
    rows: list[list[Cell]] = [
        [
            effect_name(one),
            f"{one.effect:g} SD = {score(one.effect * one.run_sd)}",
            f"{one.power:g} at {one.significance:.2g}",
            f"{one.seeds:,}",
            "more than 10,000" if one.seeds_needed is None else f"{one.seeds_needed:,}",
        ]
        for one in result.plan
    ]
    if not rows:
        return None
    columns = ["comparison", "true effect", "power at level", "seeds here", "seeds needed"]
    caption = "Seeds that show an effect on the regret, on these benchmarks, from this variance"
    return DataTable(columns, rows, caption, right=())


def fallback_share(result: VisibilityResult) -> float | None:
    """Share of all steps of whole runs that are not the model's."""
    return _share(result, "fallback_share")


def unparsable_share(result: VisibilityResult) -> float | None:
    """Share of all steps of whole runs whose reply could not be read."""
    return _share(result, "unparsable_share")


def _share(result: VisibilityResult, outcome: OutcomeName) -> float | None:
    """Every run has as many steps, so runs weigh alike."""
    means = ((one.n_runs, one.means.get(outcome)) for one in result.cells)
    known = [(n, mean) for n, mean in means if mean is not None]
    runs = sum(n for n, _ in known)
    return sum(n * mean for n, mean in known) / runs if runs else None


def _span(value: float, low: float | None, high: float | None) -> Bracketed:
    known = "" if low is None or high is None else f" [{score(low)}, {score(high)}]"
    return Bracketed(f"{score(value)}{known}")


def overview(result: VisibilityResult) -> dict[str, Any]:
    """Return the result as one row: verdict, regret at both ends, each effect on it, fallbacks."""
    everything = next((one for one in result.curves if one.axis is None), None)
    row: dict[str, Any] = {
        "model": result.model,
        "showing more": result.verdict.replace("_", " "),
        "benchmarks": ", ".join(result.benchmarks),
        "runs": result.n_runs,
        "runs that are not whole": len(result.missing),
        "regret at the start": everything and everything.points[0].regret,
        "regret after the last step": everything and everything.points[-1].regret,
    }
    for one in result.effects:
        if one.outcome == "regret":
            row[f"{effect_name(one)}: difference"] = one.difference
            row[f"{effect_name(one)}: verdict"] = VERDICT_WORDS[one.verdict]
    return {
        **row,
        "fallback steps": fallback_share(result),
        "unparsable steps": unparsable_share(result),
    }


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
