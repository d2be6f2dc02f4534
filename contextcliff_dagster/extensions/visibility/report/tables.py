"""Tables of the visibility report.

It also states a result's answer in a few sentences.
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
    behaviour_rows,
    comparison_name,
    effect_name,
    group_of,
    level_name,
    shows_more,
)
from contextcliff_dagster.reporting.sections import Bracketed, Cell, Code, DataTable, filled
from contextcliff_dagster.reporting.wording import (
    count,
    difference,
    level,
    listed,
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
"""Maximum combinations in a table; with more, only the lowest and highest regrets are listed."""


def models(results: Sequence[VisibilityResult]) -> DataTable:
    """Return a table with one row per model."""
    rows: list[list[Cell]] = []
    for result in results:
        last = next((curve.points[-1] for curve in result.curves if curve.axis is None), None)
        regret = None if last is None else _span(last.regret, last.ci_low, last.ci_high)
        verdict = result.verdict.replace("_", " ")
        fallback = percent(mean_share(result, "fallback_share"), "no step")
        rows.append([Code(result.model), verdict, result.n_runs, regret, fallback])
    columns = ["model", "showing more", "runs", "regret after the last step", "fallback steps"]
    return DataTable(columns, rows, "Each model, over all of its runs", right=())


def effects(result: VisibilityResult, outcome: OutcomeName) -> DataTable | None:
    """Tabulate all effects on an outcome, grouped as in the picture; None if there are none."""
    effects_found = [effect for effect in result.effects if effect.outcome == outcome]
    rows: list[list[Cell]] = [
        [
            effect_name(effect),
            f"{effect.n_pairs:,} ({effect.n_clusters:,})",
            score(effect.mean),
            score(effect.mean_reference),
            Bracketed(with_limits(effect.difference, effect.ci_low, effect.ci_high)),
            p_value(effect.p_value),
            p_value(effect.p_holm),
            None if effect.standardised is None else f"{effect.standardised:+.2f}",
            None if effect.excluded is None else difference(effect.excluded),
            VERDICT_WORDS[effect.verdict],
        ]
        for effect in sorted(effects_found, key=lambda effect: GROUPS.index(group_of(effect)))
    ]
    columns = [
        *("comparison", "pairs (benchmark-seeds)", "mean", "reference", "difference"),
        *("p", "p, Holm", "in SD", "benefit ruled out from", "verdict"),
    ]
    name = OUTCOME_NAMES[outcome]
    caption = (
        f"{name[0].upper()}{name[1:]}: pairs of runs equal in all else, {level(result.confidence)} "
        "intervals over benchmark-seeds; below 0 the level is better"
    )
    return filled(DataTable(columns, rows, caption, right=()))


def by_benchmark(result: VisibilityResult) -> DataTable | None:
    """Return a table of regret differences by benchmark; None with fewer than two benchmarks."""
    if len(result.benchmarks) < 2:
        return None
    rows: list[list[Cell]] = []
    for effect in result.effects:
        if effect.outcome != "regret" or effect.difference is None:
            continue
        by_name = {part.benchmark: part for part in effect.by_benchmark}
        cells: list[Cell] = [
            None
            if part is None
            else Bracketed(with_limits(part.difference, part.ci_low, part.ci_high))
            for part in (by_name.get(name) for name in result.benchmarks)
        ]
        rows.append([effect_name(effect), *cells])
    columns = ["comparison", *result.benchmarks]
    caption = "Difference in regret on each benchmark, intervals over seeds; no test"
    return filled(DataTable(columns, rows, caption, right=()))


def behaviour(result: VisibilityResult) -> DataTable | None:
    """Tabulate the effects on behaviour with intervals; None if there are none."""
    rows: list[list[Cell]] = [
        [
            effect_name(next(iter(effects.values()))),
            *(_marked(effects.get(outcome)) for outcome in BEHAVIOUR),
        ]
        for effects in behaviour_rows(result)
    ]
    caption = (
        f"Differences in behaviour with {level(result.confidence)} intervals, and a verdict if "
        "significant after Holm over all of them"
    )
    columns = ["comparison", *(OUTCOME_NAMES[outcome] for outcome in BEHAVIOUR)]
    return filled(DataTable(columns, rows, caption, right=()))


def _marked(effect: AxisEffect | None) -> Cell:
    if effect is None:
        return None
    words = Bracketed(with_limits(effect.difference, effect.ci_low, effect.ci_high))
    if effect.verdict == "undecided" or words is None:
        return words
    return Bracketed(f"{words.text} {VERDICT_WORDS[effect.verdict]}")


def combinations(result: VisibilityResult) -> DataTable | None:
    """Tabulate the means of each combination, lowest regret first; None if there is only one."""
    if len(result.cells) < 2:
        return None
    ranked = sorted(result.cells, key=lambda one: (_known_first(one), one.signature))
    shown = ranked
    if len(ranked) > MOST_CELLS:
        shown = [*ranked[: MOST_CELLS // 2], *ranked[-MOST_CELLS // 2 :]]
    axes = [axis for axis, levels in result.levels.items() if len(levels) > 1]
    names: tuple[OutcomeName, ...] = ("regret", "area", *BEHAVIOUR)
    rows: list[list[Cell]] = [
        [
            *(level_name(axis, cell.levels[axis]) for axis in axes),
            cell.n_runs,
            *(score(cell.means.get(name), "–") for name in names),
        ]
        for cell in shown
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
    """Tabulate how each effect depends on another axis; None if there are no interactions."""
    rows: list[list[Cell]] = [
        [
            effect_name(row),
            comparison_name(row.other, row.other_level, row.other_reference),
            f"{row.n_fours:,} ({row.n_clusters:,})",
            Bracketed(with_limits(row.difference, row.ci_low, row.ci_high)),
            p_value(row.p_value),
            p_value(row.p_holm),
        ]
        for row in result.interactions
    ]
    columns = [
        *("effect of", "with", "groups of four runs (benchmark-seeds)"),
        *("difference of differences", "p", "p, Holm"),
    ]
    caption = (
        "Change of an effect on the regret with another axis: below 0 the regret falls more at the "
        "other axis's level"
    )
    return filled(DataTable(columns, rows, caption, right=()))


def searches(result: VisibilityResult) -> DataTable | None:
    """Return a table of searches without a model; None if there are none."""
    rows: list[list[Cell]] = [
        [
            SEARCH_NAMES.get(search.name, search.name),
            search.n_clusters,
            score(search.regret),
            score(search.area),
            Bracketed(with_limits(search.difference, search.ci_low, search.ci_high)),
        ]
        for search in result.searches
    ]
    columns = ["search", "benchmark-seeds", "regret", "area", "model minus search"]
    caption = (
        "Searches without a model, on the same splits, starts and budget; difference in regret "
        "after the last step, below 0 the model is better; no test"
    )
    return filled(DataTable(columns, rows, caption, right=()))


def plan(result: VisibilityResult) -> DataTable | None:
    """Tabulate the seeds needed to detect each effect; None if no effect has an estimate."""
    rows: list[list[Cell]] = [
        [
            effect_name(row),
            f"{row.effect:g} SD = {score(row.effect * row.run_sd)}",
            f"{row.power:g} at {row.significance:.2g}",
            f"{row.seeds:,}",
            "more than 10,000" if row.seeds_needed is None else f"{row.seeds_needed:,}",
        ]
        for row in result.plan
    ]
    columns = ["comparison", "true effect", "power at level", "seeds here", "seeds needed"]
    caption = "Seeds to show an effect on the regret on these benchmarks, given their variance"
    return filled(DataTable(columns, rows, caption, right=()))


def mean_share(result: VisibilityResult, outcome: OutcomeName) -> float | None:
    """Return an outcome's mean over combinations, weighted by runs, which are equally long."""
    means = ((cell.n_runs, cell.means.get(outcome)) for cell in result.cells)
    shares = [(n, mean) for n, mean in means if mean is not None]
    runs = sum(n for n, _ in shares)
    return sum(n * mean for n, mean in shares) / runs if runs else None


def _span(value: float, low: float | None, high: float | None) -> Bracketed:
    limits = "" if low is None or high is None else f" [{score(low)}, {score(high)}]"
    return Bracketed(f"{score(value)}{limits}")


def overview(result: VisibilityResult) -> dict[str, Any]:
    """Return the result as one row: verdict, first and last regret, effects, fallbacks."""
    everything = next((curve for curve in result.curves if curve.axis is None), None)
    row: dict[str, Any] = {
        "model": result.model,
        "showing more": result.verdict.replace("_", " "),
        "benchmarks": ", ".join(result.benchmarks),
        "runs": result.n_runs,
        "runs that are not whole": len(result.missing),
        "regret at the start": everything and everything.points[0].regret,
        "regret after the last step": everything and everything.points[-1].regret,
    }
    for effect in result.effects:
        if effect.outcome == "regret":
            row[f"{effect_name(effect)}: difference"] = effect.difference
            row[f"{effect_name(effect)}: verdict"] = VERDICT_WORDS[effect.verdict]
    return {
        **row,
        "fallback steps": mean_share(result, "fallback_share"),
        "unparsable steps": mean_share(result, "unparsable_share"),
    }


def answer_sentences(result: VisibilityResult) -> list[str]:
    """Return sentences on whether showing more helps and how the runs compare with searches."""
    return [sentence for sentence in (_verdict(result), _reached(result)) if sentence]


def _verdict(result: VisibilityResult) -> str:
    regret = [e for e in result.effects if e.outcome == "regret" and shows_more(e)]
    names = {
        word: listed(
            [
                f"{effect_name(effect)} ({difference(effect.difference)})"
                for effect in regret
                if effect.verdict == word
            ]
        )
        for word in ("better", "worse")
    }
    if not regret:
        return ""
    if result.verdict == "helps":
        return f"Showing more helps: the regret is lower with {names['better']}."
    if result.verdict == "harms":
        return f"Showing more harms: the regret is higher with {names['worse']}."
    if result.verdict == "mixed":
        return (
            f"Some of what is shown helps, some harms: the regret is lower with {names['better']}, "
            f"higher with {names['worse']}."
        )
    if result.verdict == "no_benefit":
        return (
            f"Showing more does not help: a benefit of {result.margin:g} or more is ruled out for "
            "every axis."
        )
    return (
        "Whether showing more helps is undecided: no axis changed the regret measurably, and a "
        f"benefit of {result.margin:g} is not ruled out for every axis."
    )


def _reached(result: VisibilityResult) -> str:
    everything = next((curve for curve in result.curves if curve.axis is None), None)
    if everything is None:
        unknown = "Regret is unknown: this benchmark has no landscape. Scores are known."
        return unknown if result.n_runs else ""
    start, end = everything.points[0].regret, everything.points[-1].regret
    runs = "The run" if everything.n_runs == 1 else f"{everything.n_runs:,} runs"
    sentence = f"{runs} went from a regret of {score(start)} to {score(end)} in "
    sentence += count(result.steps, "step")
    if not result.searches:
        return f"{sentence}."
    best = score(min(search.regret for search in result.searches))
    names = [SEARCH_NAMES.get(s.name, s.name) for s in result.searches if score(s.regret) == best]
    return f"{sentence}; of the searches without a model the best reach {best} ({listed(names)})."


def fallback_sentence(result: VisibilityResult) -> str:
    """Return a sentence on the fractions of fallback steps and of unparsable replies."""
    share = mean_share(result, "fallback_share")
    unreadable = mean_share(result, "unparsable_share")
    steps = result.n_runs * result.steps
    if share is None or not steps:
        return "No run is complete, so there are no steps to count."
    if share >= 1:
        return (
            f"No reply in {count(steps, 'step')} set a parameter: nothing here shows the model's "
            f"search ({percent(unreadable)} of the replies could not be read)."
        )
    if not share:
        return f"Every reply set a parameter: none of {count(steps, 'step')} is a fallback."
    return (
        f"{percent(share)} of {count(steps, 'step')} are fallbacks, whose reply set nothing; "
        f"{percent(unreadable)} of the replies could not be read."
    )
