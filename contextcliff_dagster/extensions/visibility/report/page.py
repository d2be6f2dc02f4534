"""The report on visibility as data: the answer first, what carries it folded by question.

Single runs by step: validation scores, and where each parameter lies within its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.visibility.report import tables
from contextcliff_dagster.extensions.visibility.report.behaviour_figure import plot_behaviour
from contextcliff_dagster.extensions.visibility.report.curves_figure import plot_curves
from contextcliff_dagster.extensions.visibility.report.effects_figure import plot_effects
from contextcliff_dagster.extensions.visibility.report.single_runs import (
    Trajectory,
    trajectories_of,
)
from contextcliff_dagster.extensions.visibility.report.tables import (
    answer_sentences,
    fallback_sentence,
)
from contextcliff_dagster.extensions.visibility.results import VisibilityResult
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.reporting.figures import house
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    DataTable,
    Fold,
    Page,
    Paragraph,
    Section,
    Strong,
    as_folds,
    of_each,
    picture,
)
from contextcliff_dagster.reporting.wording import count, level, named
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.visibility.report.single_runs import RecordedRun
    from contextcliff_dagster.extensions.visibility.tasks.task import Task
    from contextcliff_dagster.reporting.report_files import ReportFiles


_LEFT, _WIDE, _GAP = 0.85, 4.75, 0.65
_TALL, _ROW, _HEAD, _FOOT = 2.1, 3.2, 1.3, 1.15
_NOT_THE_MODELS = "#B3261E"
_MOST_MARKS = 40
"""Steps up to which each one has a mark; a fallback always has one."""


@house.styled()
def plot_trajectories(told: Sequence[Trajectory]) -> bytes | None:
    """The picture as PNG bytes, a row each run; None without a run. Same input, same bytes."""
    if not told:
        return None
    height = _HEAD + _ROW * len(told) - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    for row, one in enumerate(told):
        bottom = height - _HEAD - row * _ROW - _TALL
        task = task_named(one.run.benchmark)
        scores = house.panel(figure, _LEFT, bottom, _WIDE, _TALL)
        places = house.panel(figure, _LEFT + _WIDE + _GAP, bottom, _WIDE, _TALL)
        title = f"{one.why}: {house.shortened(one.run.key, 70)}"
        house.write(figure, 0.3, bottom + _TALL + 0.56, title, fontsize=11, fontweight="bold")
        _scores(scores, one.run, task)
        _places(places, one.run, task)
        for axes in (scores, places):
            _frame(axes, one.run, named=row == len(told) - 1)
    title = f"Runs step by step: {house.shortened(told[0].model, 50)}"
    house.write(figure, 0.3, height - 0.3, title, fontsize=14, fontweight="bold")
    notes = (
        "Left: dashed, the best so far. Red crosses: fallbacks, which the model did not choose.",
        "Right: each parameter between its bounds, on its own scale.",
    )
    for line, text in enumerate(notes):
        house.write(figure, 0.3, 0.44 - 0.22 * line, text, fontsize=10, color=house.SOFT_INK)
    return house.png_bytes(figure, colours=128)


def _frame(axes: Axes, run: RecordedRun, *, named: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.03 * run.planned_steps - 0.05, run.planned_steps * 1.03 + 0.05)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.grid(axis="y")
    if named:
        axes.set_xlabel("step (0: start)")


def _scores(axes: Axes, run: RecordedRun, task: Task) -> None:
    axes.set_ylabel(house.shortened(task.score.name, 26))
    direction = "higher" if task.score.higher_is_better else "lower"
    axes.set_title(f"validation score, {direction} is better", fontsize=10, fontweight="normal")
    known = [one for one in run.steps if one.validation is not None]
    at, scores = [one.number for one in known], [one.validation or 0.0 for one in known]
    axes.plot(at, scores, color=house.look(0).colour, lw=1.2, zorder=2)
    best, so_far = None, []
    for score in scores:
        better = max if task.score.higher_is_better else min
        best = score if best is None else better(best, score)
        so_far.append(best)
    axes.step(at, so_far, where="post", color=house.SOFT_INK, lw=1.1, ls=(0, (4, 2)), zorder=1)
    chosen = [one for one in known if one.step.source != "fallback"]
    if len(run.steps) <= _MOST_MARKS:
        x, y = [one.number for one in chosen], [one.validation for one in chosen]
        house.draw_markers(axes, x, y, house.look(0).colour, ms=6, mew=0.8, zorder=4)
    lost = [one for one in known if one.step.source == "fallback"]
    axes.plot(
        [one.number for one in lost],
        [one.validation or 0.0 for one in lost],
        ls="none",
        marker="x",
        color=_NOT_THE_MODELS,
        ms=7,
        mew=1.8,
        zorder=5,
    )


def _places(axes: Axes, run: RecordedRun, task: Task) -> None:
    axes.set_ylim(-0.06, 1.06)
    axes.set_yticks([0, 0.5, 1], ["lower", "middle", "upper"])
    at = [one.number for one in run.steps]
    rows = [task.space.positions(one.step.config) for one in run.steps]
    for number, name in enumerate(task.space.names):
        style = house.look(number)
        places = [float(row[number]) for row in rows]
        marks: dict[str, Any] = {"color": style.colour, "ls": style.dash, "lw": 1.5, "zorder": 3}
        axes.plot(at, places, label=house.shortened(name, 22), **marks)
        if len(at) <= _MOST_MARKS:
            house.draw_markers(axes, at, places, style.colour, marker=style.marker, ms=5, mew=0.7)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.01, 1.0),
        ncol=3,
        fontsize=9.5,
        handlelength=2.4,
        borderpad=0.1,
        columnspacing=1.2,
    )


MEASURED = (
    "The model tunes hyper-parameters step by step, and what it is shown is varied. It sees "
    "validation scores; what counts is the test score of the configuration that validates best, "
    "as regret: 0 is the best configuration of the benchmark's landscape, 1 the worst."
)
HOW_TO_READ = (
    "Regret falls as a search finds better configurations. A grey line below the model's is a "
    "search that does better without any model. Bands of two levels may overlap though they "
    "differ: effects are of pairs, from which what benchmarks and seeds do alike is gone.",
    "Each difference is of pairs of runs that are equal in benchmark, seed and all other axes. "
    "Below 0 the regret is less: showing it helps.",
    "A placebo is a text of the same length about something else. Placebo less hidden is the "
    "effect of a longer prompt; shown less placebo is that of what the text says.",
    '"No benefit" is a finding: one as large as the margin is excluded. "Undecided" is none: '
    "neither an effect nor its absence is shown.",
    "Churn is how far a step moves within the bounds, 0 to 1. A step repeats the one before "
    "(stagnation), goes back to an earlier configuration (oscillation), or is new (novelty); the "
    "three add up to 1.",
    "A step whose reply sets nothing is a fallback: the configuration stays, and the step counts "
    "as no behaviour of the model.",
)


def visibility_page(
    results: Sequence[VisibilityResult],
    *,
    title: str,
    trajectories: Sequence[Trajectory] = (),
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page over one result a model; figures only of those in ``pictures``."""
    there = pictures or {}
    several = len(results) > 1
    summary = [tables.models(results)] if several else []
    head = [Section(title, [Paragraph(MEASURED), *summary], 1)]
    for result in results:
        head.append(Section([Code(result.model)] if several else "Result", _answer(result, there)))

    def told(result: VisibilityResult) -> list[Section]:
        return _trajectories(result, _of_model(trajectories, result), there)

    single = len(results) == 1 and results[0].n_runs <= 1
    if single and trajectories:
        head += [Section(one.title, one.blocks, 2) for one in told(results[0])]
    folds = [
        Fold("What does each axis change?", of_each(results, _effects)),
        Fold("How does it search?", of_each(results, lambda one: _behaviour(one, there))),
        Fold("What does a run do, step by step?", [] if single else of_each(results, told)),
        Fold("Does an effect depend on another axis?", of_each(results, _interactions)),
        Fold("What does a search without a model reach?", of_each(results, _searches)),
        Fold("How many seeds does it need?", of_each(results, _plan)),
        Fold("How is it read?", _section("Reading", Bullets(HOW_TO_READ))),
        Fold("How was it measured?", of_each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(
    results: Sequence[VisibilityResult], trajectories: Sequence[Trajectory] = ()
) -> dict[str, bytes]:
    """Return the pictures of each result as PNG, by the name of their file."""
    drawn: dict[str, bytes] = {}
    for result in results:
        pictures = {what: draw(result) for what, draw in _PICTURES.items()}
        pictures["runs"] = plot_trajectories(_of_model(trajectories, result))
        for what, drawing in pictures.items():
            if drawing is not None:
                drawn[picture_file(result, what)] = drawing
    return drawn


def _of_model(told: Sequence[Trajectory], result: VisibilityResult) -> list[Trajectory]:
    return [one for one in told if one.model == result.model]


_PICTURES: Mapping[str, Callable[[VisibilityResult], bytes | None]] = {
    "curves": plot_curves,
    "effects": plot_effects,
    "behaviour": plot_behaviour,
}


def picture_file(result: VisibilityResult, what: str) -> str:
    """The file of a result's picture: ``curves``, ``effects``, ``behaviour``, ``runs``."""
    return f"visibility-{what}-{slug(result.model)}.png"


def _answer(result: VisibilityResult, there: Mapping[str, bytes]) -> list[Block]:
    curves = (
        "Regret by step: of all runs, of the levels of each axis, and of searches without a model"
    )
    effects = "Difference of the regret that each axis makes, with intervals, margin and verdict"
    return [
        Paragraph([Strong(" ".join(answer_sentences(result)))]),
        Paragraph(fallback_sentence(result)),
        *picture(picture_file(result, "effects"), effects, there),
        *picture(picture_file(result, "curves"), curves, there),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _section(title: str, *blocks: Block | None) -> list[Section]:
    there = [block for block in blocks if block is not None]
    return [Section(title, there, 3)] if there else []


def _effects(result: VisibilityResult) -> list[Section]:
    return _section(
        "Effects on the regret",
        Bullets(list(result.headline)) if result.effects else None,
        tables.effects(result, "regret"),
        tables.effects(result, "area"),
        tables.by_benchmark(result),
    )


def _behaviour(result: VisibilityResult, there: Mapping[str, bytes]) -> list[Section]:
    alt = "Differences of each measure of behaviour that each axis makes, as in the table below"
    figure = picture(picture_file(result, "behaviour"), alt, there)
    table, cells = tables.behaviour(result), tables.combinations(result)
    return [*_section("Behaviour", *figure, table), *_section("Combinations", cells)]


def _trajectories(
    result: VisibilityResult, told: Sequence[Trajectory], there: Mapping[str, bytes]
) -> list[Section]:
    if not told:
        return []
    alt = "Validation scores and parameters of these runs by step, as in the sentences below"
    blocks: list[Block] = [*picture(picture_file(result, "runs"), alt, there)]
    if len(told) > 1:
        rule = (
            "Runs are chosen by rule: of the combination that shows most, the run of median "
            "regret, and that of most."
        )
        blocks.insert(0, Paragraph(rule))
    return [
        *_section("Steps", *blocks),
        *(
            Section(
                [f"{one.why}: ", Code(one.run.key)],
                [Paragraph(" ".join(one.summary)), Bullets(list(one.steps))],
                3,
            )
            for one in told
        ),
    ]


def _interactions(result: VisibilityResult) -> list[Section]:
    return _section("Interactions", tables.interactions(result))


def _searches(result: VisibilityResult) -> list[Section]:
    return _section("Searches", tables.searches(result))


def _plan(result: VisibilityResult) -> list[Section]:
    return _section("Seeds", tables.plan(result))


def _method(result: VisibilityResult) -> list[Section]:
    facts = [
        f"{count(result.n_runs, 'whole run')} of {count(result.steps, 'step')} on "
        f"{named('benchmark', list(result.benchmarks))}, {count(len(result.seeds), 'seed')}; a "
        "seed sets split, model, start and draws.",
        "A run of which a step has no answer is in no mean and no test.",
    ]
    tests = [
        f"Tests flip the labels within pairs; the error rate of {level(1.0 - result.confidence)} "
        "is over all effects of the report together, half of it for the regret (Holm). Intervals "
        f"are at {level(result.confidence)} over benchmark-seeds.",
        f"A difference of the regret of {result.margin:g} counts as one that matters; resampling "
        f"seed {result.seed}.",
    ]
    facts += tests if result.effects else []
    lost: DataTable | None = None
    if result.missing:
        rows: list[list[Cell]] = [
            [Code(one.run), one.steps] for one in result.missing[:_MOST_MISSING]
        ]
        caption = f"{len(rows)} of {count(len(result.missing), 'run')} that are not whole"
        lost = DataTable(["run", "steps with an answer"], rows, caption)
    return _section("Method", Bullets(facts), lost)


_MOST_MISSING = 24


def write_visibility_report(
    run: StudyRun,
    results: Sequence[VisibilityResult],
    records: pd.DataFrame,
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page of a study without a length profile, with ``others`` at its end.

    Args:
        records: `tables.VISIBILITY_RECORDS` of all models, for the runs step by step.

    Raises:
        StoreError: it cannot be written.
    """
    from contextcliff_dagster.reporting.report_files import write_page

    trajectories = trajectories_of(records)
    pictures = draw_pictures(results, trajectories)
    page = visibility_page(
        results,
        title=run.study.description or run.study.name,
        trajectories=trajectories,
        pictures=pictures,
    )
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        results=[to_json(result) for result in results],
    )
