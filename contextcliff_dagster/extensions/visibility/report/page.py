"""The visibility report as data: the answer first, then collapsible evidence by question.

It also plots single runs step by step: validation scores, and each parameter within its bounds.
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
"""Largest number of steps at which every step has a mark; fallbacks always have one."""


@house.styled()
def plot_trajectories(told: Sequence[Trajectory]) -> bytes | None:
    """Return the picture as deterministic PNG bytes, with one row per run; None without runs."""
    if not told:
        return None
    height = _HEAD + _ROW * len(told) - (_ROW - _TALL) + _FOOT
    figure = house.blank_page(height)
    for row, trajectory in enumerate(told):
        bottom = height - _HEAD - row * _ROW - _TALL
        task = task_named(trajectory.run.benchmark)
        scores = house.panel(figure, _LEFT, bottom, _WIDE, _TALL)
        places = house.panel(figure, _LEFT + _WIDE + _GAP, bottom, _WIDE, _TALL)
        title = f"{trajectory.why}: {house.shortened(trajectory.run.key, 70)}"
        house.write(figure, 0.3, bottom + _TALL + 0.56, title, fontsize=11, fontweight="bold")
        _scores(scores, trajectory.run, task)
        _places(places, trajectory.run, task)
        for axes in (scores, places):
            _frame(axes, trajectory.run, named=row == len(told) - 1)
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
    trained = [step for step in run.steps if step.validation is not None]
    at, scores = [step.number for step in trained], [step.validation or 0.0 for step in trained]
    axes.plot(at, scores, color=house.look(0).colour, lw=1.2, zorder=2)
    best, so_far = None, []
    for score in scores:
        better = max if task.score.higher_is_better else min
        best = score if best is None else better(best, score)
        so_far.append(best)
    axes.step(at, so_far, where="post", color=house.SOFT_INK, lw=1.1, ls=(0, (4, 2)), zorder=1)
    proposals = [step for step in trained if step.step.source != "fallback"]
    if len(run.steps) <= _MOST_MARKS:
        x, y = [step.number for step in proposals], [step.validation for step in proposals]
        house.draw_markers(axes, x, y, house.look(0).colour, ms=6, mew=0.8, zorder=4)
    fallbacks = [step for step in trained if step.step.source == "fallback"]
    axes.plot(
        [step.number for step in fallbacks],
        [step.validation or 0.0 for step in fallbacks],
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
    at = [step.number for step in run.steps]
    rows = [task.space.positions(step.step.config) for step in run.steps]
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
    "The model tunes hyper-parameters step by step and is shown varying information. It sees "
    "validation scores; the result is the test score of the configuration that validates best, "
    "as regret: 0 is the best configuration of the benchmark's landscape, 1 the worst."
)
HOW_TO_READ = (
    "Regret falls as a search finds better configurations. A grey line below the model's is a "
    "search that does better without any model. Bands may overlap although levels differ: "
    "effects compare pairs of runs, which cancels what depends on benchmark and seed alone.",
    "Each difference compares runs with equal benchmark, seed and other axes. "
    "Below 0 the regret is lower: showing it helps.",
    "A placebo is a text of the same length about something else. Placebo minus hidden is the "
    "effect of a longer prompt; shown minus placebo is the effect of the text's content.",
    '"No benefit" is a result: a benefit as large as the margin is ruled out. "Undecided" is '
    "not: neither an effect nor its absence is shown.",
    "Churn is how far a step moves within the bounds, 0 to 1. A step repeats the one before "
    "(stagnation), goes back to an earlier configuration (oscillation), or is new (novelty); the "
    "three add up to 1.",
    "A step whose reply sets nothing is a fallback: the configuration stays, and the step does "
    "not count as the model's behaviour.",
)


def visibility_page(
    results: Sequence[VisibilityResult],
    *,
    title: str,
    trajectories: Sequence[Trajectory] = (),
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page for the results, one per model; ``pictures`` holds the figures to embed."""
    images = pictures or {}
    several = len(results) > 1
    summary = [tables.models(results)] if several else []
    head = [Section(title, [Paragraph(MEASURED), *summary], 1)]
    for result in results:
        head.append(Section([Code(result.model)] if several else "Result", _answer(result, images)))

    def told(result: VisibilityResult) -> list[Section]:
        return _trajectories(result, _of_model(trajectories, result), images)

    def each(title: str, table: Callable[[VisibilityResult], DataTable | None]) -> list[Section]:
        return of_each(results, lambda one: _section(title, table(one)))

    single = len(results) == 1 and results[0].n_runs <= 1
    if single and trajectories:
        head += [Section(trajectory.title, trajectory.blocks, 2) for trajectory in told(results[0])]
    folds = [
        Fold("What does each axis change?", of_each(results, _effects)),
        Fold("How does it search?", of_each(results, lambda one: _behaviour(one, images))),
        Fold("What does a run do, step by step?", [] if single else of_each(results, told)),
        Fold("Does an effect depend on another axis?", each("Interactions", tables.interactions)),
        Fold("What does a search without a model reach?", each("Searches", tables.searches)),
        Fold("How many seeds does it need?", each("Seeds", tables.plan)),
        Fold("How do I read it?", _section("Reading", Bullets(HOW_TO_READ))),
        Fold("How was it measured?", of_each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(
    results: Sequence[VisibilityResult], trajectories: Sequence[Trajectory] = ()
) -> dict[str, bytes]:
    """Draw the pictures for each result; return them as PNG bytes by file name."""
    files: dict[str, bytes] = {}
    for result in results:
        pictures = {what: draw(result) for what, draw in _PICTURES.items()}
        pictures["runs"] = plot_trajectories(_of_model(trajectories, result))
        for what, drawing in pictures.items():
            if drawing is not None:
                files[picture_file(result, what)] = drawing
    return files


def _of_model(told: Sequence[Trajectory], result: VisibilityResult) -> list[Trajectory]:
    return [trajectory for trajectory in told if trajectory.model == result.model]


_PICTURES: Mapping[str, Callable[[VisibilityResult], bytes | None]] = {
    "curves": plot_curves,
    "effects": plot_effects,
    "behaviour": plot_behaviour,
}


def picture_file(result: VisibilityResult, what: str) -> str:
    """Return a picture's file name; ``what`` is curves, effects, behaviour or runs."""
    return f"visibility-{what}-{slug(result.model)}.png"


def _answer(result: VisibilityResult, there: Mapping[str, bytes]) -> list[Block]:
    curves = (
        "Regret by step: of all runs, of the levels of each axis, and of searches without a model"
    )
    effects = "Effect of each axis on the regret, with intervals, margin and verdict"
    return [
        Paragraph([Strong(" ".join(answer_sentences(result)))]),
        Paragraph(fallback_sentence(result)),
        *picture(picture_file(result, "effects"), effects, there),
        *picture(picture_file(result, "curves"), curves, there),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _section(title: str, *blocks: Block | None) -> list[Section]:
    present = [block for block in blocks if block is not None]
    return [Section(title, present, 3)] if present else []


def _effects(result: VisibilityResult) -> list[Section]:
    return _section(
        "Effects on the regret",
        Bullets(list(result.headline)) if result.effects else None,
        tables.effects(result, "regret"),
        tables.effects(result, "area"),
        tables.by_benchmark(result),
    )


def _behaviour(result: VisibilityResult, there: Mapping[str, bytes]) -> list[Section]:
    alt = "Effect of each axis on each measure of behaviour, as in the table below"
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
            "Runs are chosen by rule: in the combination that shows most, those with "
            "the median and the highest regret."
        )
        blocks.insert(0, Paragraph(rule))
    return [
        *_section("Steps", *blocks),
        *(
            Section(
                [f"{trajectory.why}: ", Code(trajectory.run.key)],
                [Paragraph(" ".join(trajectory.summary)), Bullets(list(trajectory.steps))],
                3,
            )
            for trajectory in told
        ),
    ]


def _method(result: VisibilityResult) -> list[Section]:
    facts = [
        f"{count(result.n_runs, 'complete run')} of {count(result.steps, 'step')} on "
        f"{named('benchmark', list(result.benchmarks))}, {count(len(result.seeds), 'seed')}; a "
        "seed sets split, model, start and draws.",
        "Runs with an unanswered step are left out of all means and tests.",
    ]
    tests = [
        f"Tests flip the labels within pairs; the error rate of {level(1.0 - result.confidence)} "
        "covers all effects of the report together, half of it for the regret (Holm). Intervals "
        f"are at {level(result.confidence)} over benchmark-seeds.",
        f"A regret difference of {result.margin:g} or more matters; resampling seed {result.seed}.",
    ]
    facts += tests if result.effects else []
    incomplete: DataTable | None = None
    if result.missing:
        rows: list[list[Cell]] = [
            [Code(run.run), run.steps] for run in result.missing[:_MOST_MISSING]
        ]
        caption = f"{len(rows)} of {count(len(result.missing), 'incomplete run')}"
        incomplete = DataTable(["run", "steps with an answer"], rows, caption)
    return _section("Method", Bullets(facts), incomplete)


_MOST_MISSING = 24


def write_visibility_report(
    run: StudyRun,
    results: Sequence[VisibilityResult],
    records: pd.DataFrame,
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page of a study without a length profile, with the sections ``others`` at its end.

    Args:
        records: rows of `tables.VISIBILITY_RECORDS` for all models, to describe runs step by step.

    Raises:
        StoreError: the report cannot be written.
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
