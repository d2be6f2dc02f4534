"""The page on visibility: the answer first, every figure of the result in a table."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.visibility.analysis.model import analyse_model
from contextcliff_dagster.extensions.visibility.report.page import (
    HOW_TO_READ,
    MEASURED,
    draw_pictures,
    visibility_page,
)
from contextcliff_dagster.extensions.visibility.report.single_runs import (
    Trajectory,
    trajectories_of,
)
from contextcliff_dagster.extensions.visibility.report.tables import (
    MOST_CELLS,
    answer_sentences,
    combinations,
    fallback_sentence,
    overview,
)
from contextcliff_dagster.extensions.visibility.results import MissingRun, VisibilityResult
from contextcliff_dagster.extensions.visibility.section import VisibilitySection
from contextcliff_dagster.reporting.report_files import write_page
from contextcliff_dagster_tests.extensions.visibility.made_records import records_of_runs
from contextcliff_dagster_tests.extensions.visibility.report.made_results import FIXED, made_result

HOSTILE = "q4|<script>alert(1)</script> [x](http://example.invalid)"
ONE = {axis: levels[:1] for axis, levels in FIXED.items()}


@cache
def told() -> tuple[Trajectory, ...]:
    return tuple(trajectories_of(records_of_runs(VisibilitySection(benchmarks=["toy"], steps=4))))


def single(model: str = "tuner") -> VisibilityResult:
    """One run, as of the command `visibility run`."""
    made = made_result(model, levels=ONE, benchmarks=["toy"])
    curve = made.curves[0]
    points = [replace(one, ci_low=None, ci_high=None) for one in curve.points]
    return replace(
        made,
        n_runs=1,
        seeds=[0],
        effects=[],
        interactions=[],
        plan=[],
        curves=[replace(curve, points=points, n_runs=1, n_clusters=1)],
        cells=[replace(made.cells[0], n_runs=1)],
        searches=[],
        verdict="undecided",
    )


def written(
    folder: Path, *results: VisibilityResult, trajectories: tuple[Trajectory, ...] = ()
) -> tuple[str, str, dict[str, bytes]]:
    pictures = draw_pictures(results, trajectories)
    page = visibility_page(results, title="Shown", trajectories=trajectories, pictures=pictures)
    files = write_page(page, folder, pictures=pictures, results=[to_json(one) for one in results])
    return files.md.read_text("utf-8"), files.html.read_text("utf-8"), pictures


def test_the_answer_comes_first(tmp_path: Path) -> None:
    md, html, pictures = written(tmp_path, made_result(), trajectories=told())
    assert md.index(MEASURED[:40]) < md.index("Showing more helps: the regret") < md.index(".png")
    assert answer_sentences(made_result()) == [
        "Showing more helps: the regret is lower with bounds shown (-0.21) and history of 5 steps "
        "(-0.14).",
        "144 runs went from a regret of 0.90 to 0.25 in 10 steps; of the searches without a model "
        "the best reach 0.30 (random points).",
    ]
    for text in (
        "bounds lower the regret by 0.21",
        "6.0% of 1,440 steps are fallbacks",
        "3.0% of the replies could not be read",
        "The landscape of toy was tabulated",
        "task text, not its placebo",
        "a placebo of the task text",
        "history of 5 steps",
        "TPE",
        "Median regret of 6 runs that show most",
        "Step 4:",
        HOW_TO_READ[0][:40],
    ):
        assert text in html
    assert set(pictures) == {
        f"visibility-{what}-tuner.png" for what in ("curves", "effects", "behaviour", "runs")
    }
    for content in pictures.values():
        assert Image.open(io.BytesIO(content)).format == "PNG"


@pytest.mark.parametrize("question", [
    "What does each axis change?",
    "How does it search?",
    "What does a run do, step by step?",
    "Does an effect depend on another axis?",
    "What does a search without a model reach?",
    "How many seeds does it need?",
    "How do I read it?",
    "How was it measured?",
])  # fmt: skip
def test_every_question_has_an_answer(question: str) -> None:
    page = visibility_page([made_result()], title="Shown", trajectories=told())
    (fold,) = [one for one in page.folds if one.question == question]
    assert all(section.blocks for section in fold.sections)


def test_several_models_have_sections_of_their_own(tmp_path: Path) -> None:
    results = [made_result("a"), made_result(HOSTILE)]
    runs = tuple(replace(one, model="a") for one in told())
    md, html, pictures = written(tmp_path, *results, trajectories=runs)
    assert "<script>alert" not in html
    assert f"`{HOSTILE}`".replace("|", "\\|") in md
    assert len(pictures) == 7
    assert "Each model, over all of its runs" in html
    assert html.count("Runs are chosen by rule") == 1


def test_one_run_has_its_steps_up_front_and_no_effects(tmp_path: Path) -> None:
    run = (replace(told()[0], why="The run"),)
    page = visibility_page([single()], title="One", trajectories=run)
    assert [fold.question for fold in page.folds] == ["How do I read it?", "How was it measured?"]
    _, html, pictures = written(tmp_path, single(), trajectories=run)
    assert list(pictures) == ["visibility-curves-tuner.png", "visibility-runs-tuner.png"]
    assert html.index("Step 1:") < html.index("How do I read it?")
    assert "6.0% of 10 steps" in html


def test_only_fallbacks_say_so(tmp_path: Path) -> None:
    lost = made_result(fallback=1.0)
    assert fallback_sentence(lost) == (
        "No reply in 1,440 steps set a parameter: nothing here shows the model's search (50.0% "
        "of the replies could not be read)."
    )
    assert "nothing here shows the model" in written(tmp_path, lost)[1]


def test_searches_that_are_alike_are_named_together() -> None:
    made = made_result()
    alike = [replace(one, regret=0.3) for one in made.searches[:3]]
    assert answer_sentences(replace(made, searches=alike))[1].endswith(
        "of the searches without a model the best reach 0.30 (random points, Sobol points and TPE)."
    )


def test_no_fallback_says_so() -> None:
    assert fallback_sentence(made_result(fallback=0.0)) == (
        "Every reply set a parameter: none of 1,440 steps is a fallback."
    )


def test_nothing_whole_is_nothing_invented(tmp_path: Path) -> None:
    missing = [MissingRun(run=f"toy-s{k:03d}", steps=k) for k in range(40)]
    empty = replace(
        single(), n_runs=0, curves=[], cells=[], missing=missing, headline=["No run is whole."]
    )
    _, html, pictures = written(tmp_path, empty)
    assert pictures == {}
    assert "so there are no steps to count" in html
    assert "24 of 40 incomplete runs" in html
    assert overview(empty)["regret after the last step"] is None


def test_many_combinations_are_cut_in_the_middle() -> None:
    levels = {**FIXED, "resources": ["hidden", "shown"], "direction": ["hidden", "shown"]}
    result = made_result(levels=levels)
    table = combinations(result)
    assert table is not None
    assert len(result.cells) == 96
    assert len(table.rows) == MOST_CELLS
    assert "48 of 96, those with the least and the most regret" in table.caption
    regrets = [float(str(row[table.columns.index("runs") + 1])) for row in table.rows]
    assert regrets == sorted(regrets)


def test_pictures_have_the_same_bytes_and_any_size() -> None:
    result = made_result()
    assert draw_pictures([result]) == draw_pictures([result])
    long = made_result("m" * 300, steps=200, benchmarks=["toy"])
    assert len(draw_pictures([long])) == 3


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("harms", "Showing more harms: the regret is higher with task text shown (+0.30)."),
        ("mixed", "lower with bounds shown (-0.21), higher with task text shown (+0.30)."),
        ("no_benefit", "a benefit of 0.1 or more is ruled out for every axis."),
        ("undecided", "and a benefit of 0.1 is not ruled out for every axis."),
    ],
)
def test_each_verdict_in_a_sentence(verdict: str, words: str) -> None:
    made = made_result()
    changes = {"bounds": ("better", -0.21), "task": ("worse", 0.3)}
    kept = {"harms": ["task"], "mixed": ["task", "bounds"]}.get(verdict, [])
    effects = [
        replace(one, verdict=word, difference=change)  # type: ignore[arg-type]
        for one in made.effects
        if one.outcome == "regret" and one.contrast == "shown"
        for word, change in [
            changes[one.axis] if one.axis in kept else ("undecided", one.difference)
        ]
    ]
    result = replace(made, effects=effects, verdict=verdict)  # type: ignore[arg-type]
    assert answer_sentences(result)[0].endswith(words)


def test_what_the_analysis_makes_of_records_has_a_page(tmp_path: Path) -> None:
    section = VisibilitySection(
        benchmarks=["toy", "wine"], task=["hidden", "placebo", "shown"], seeds=3, steps=5
    )
    records = records_of_runs(section)
    baselines = {"tpe": {(name, seed): [0.5, 0.4, 0.3, 0.3, 0.3, 0.3]
                         for name in ("toy", "wine") for seed in range(3)}}  # fmt: skip
    result = analyse_model(records, section, baselines=baselines)
    runs = tuple(replace(one, model=result.model) for one in trajectories_of(records))
    _, html, pictures = written(tmp_path, result, trajectories=runs)
    assert len(pictures) == 4
    assert "bounds shown" in html
    assert len(runs) == 2
    for sentence in runs[0].steps[:2]:
        assert sentence.partition(";")[0] in html


def test_the_analysis_of_one_run_has_a_page(tmp_path: Path) -> None:
    levels = {axis: list(given[:1]) for axis, given in FIXED.items()}
    section = VisibilitySection.model_validate(
        {**levels, "history": [0], "benchmarks": ["toy"], "seeds": 1, "steps": 3}
    )
    records = records_of_runs(section, lambda *_: None)
    result = analyse_model(records, section)
    runs = tuple(replace(one, model=result.model) for one in trajectories_of(records))
    _, html, pictures = written(tmp_path, result, trajectories=runs)
    assert "The run went from a regret of" in html
    assert "No reply in 3 steps set a parameter" in html
    assert "so nothing was searched" in html
    assert list(pictures) == ["visibility-curves-model.png", "visibility-runs-model.png"]


def test_a_row_of_the_overview() -> None:
    row = overview(made_result())
    assert row["bounds shown: difference"] == -0.21
    assert row["bounds shown: verdict"] == "less regret"
    assert row["fallback steps"] == pytest.approx(0.06)
    assert row["showing more"] == "helps"
