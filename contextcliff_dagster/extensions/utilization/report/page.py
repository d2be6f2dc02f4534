"""The utilization report as data: the answer first, then collapsible evidence by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.extensions.utilization.analysis.wording import capitalised, format_name
from contextcliff_dagster.extensions.utilization.report import tables
from contextcliff_dagster.extensions.utilization.report.differences import (
    plot_difference,
    plot_effects,
)
from contextcliff_dagster.extensions.utilization.report.score_figure import plot_scores
from contextcliff_dagster.extensions.utilization.results import headline_pair
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Fold,
    Page,
    Paragraph,
    Section,
    as_folds,
    of_each,
    picture,
)
from contextcliff_dagster.reporting.wording import level, score
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.contracts import Example
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.extensions.utilization.results import (
        FormatComparison,
        UtilizationResult,
    )
    from contextcliff_dagster.reporting.report_files import ReportFiles

MOST_WRONG = 24


class WrongAnswer(NamedTuple):
    """An answer that scored 0, as shown in the report."""

    model: str
    cell: str
    question: str
    expected: str
    answer: str | None
    failure: str | None
    needed: int | None
    evidence_position: float | None


def wrong_answers(records: pd.DataFrame, examples: Mapping[str, Example]) -> list[WrongAnswer]:
    """Return the wrong answers, taking one from each cell in turn."""
    wrong = records[records["score"] == 0].sort_values(["model", "bin", "seed", "example_id"])
    turn = wrong.groupby(["model", "bin"]).cumcount()
    ordered = wrong.assign(turn=turn).sort_values("turn", kind="stable")
    ordered["question"] = [_question(examples.get(name)) for name in ordered["example_id"]]
    ordered = ordered.rename(columns={"bin": "cell", "raw_output": "answer"})
    columns = ordered[[*WrongAnswer._fields]]
    return [WrongAnswer._make(row) for row in columns.itertuples(index=False)]


def _question(example: Example | None) -> str:
    return "" if example is None else example.question.partition("\n")[0]


def withheld(how: str) -> list[Section]:
    """Return a note with the command that shows the withheld examples."""
    text = ("This report shows no questions or answers. To include examples of wrong answers: ",)
    return [Section("", [Paragraph([*text, Code(how)])], 3)]


def examples_shown(wrong: Sequence[WrongAnswer]) -> list[Section]:
    """Return a table of up to `MOST_WRONG` wrong answers."""
    if not wrong:
        return [Section("", [Paragraph("No answer was wrong.")], 3)]
    rows: list[list[Cell]] = [
        [
            Code(case.model),
            Code(case.cell),
            case.question,
            Code(case.expected),
            None if case.answer is None else Code(_short(case.answer)),
            None if case.failure is None else case.failure.replace("_", " "),
            case.needed,
            None if case.evidence_position is None else f"{case.evidence_position:.2f}",
        ]
        for case in wrong[:MOST_WRONG]
    ]
    columns = [
        "model",
        "documents",
        "question",
        "right answer",
        "answer",
        "failure",
        "records needed",
        "evidence position (0: start, 1: end)",
    ]
    caption = f"{len(rows)} of {len(wrong):,} wrong answers, from every format and scale in turn"
    return [Section("Wrong answers", [DataTable(columns, rows, caption, right=())], 3)]


def _short(answer: str, most: int = 160) -> str:
    line = " ".join(answer.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


MADE = (
    "Lengths are made here, not natural: documents are generated to a set number of tokens, "
    "from the same records in every format. The result shows how a model reads records, not where "
    "it fails on your own documents; the length profile measures that."
)


def utilization_page(
    results: Sequence[UtilizationResult],
    answers: Sequence[Section] = (),
    *,
    title: str,
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page with one result per model; all figures come from ``pictures``.

    ``answers``: sections with examples of answers.
    """
    images = pictures or {}
    several = len(results) > 1
    summary = [tables.models(results)] if several else []
    work = [Paragraph(text) for text in dict.fromkeys(map(_work_sentence, results)) if text]
    head = [Section(title, [Paragraph(MADE), *work, *summary], 1)]
    for result in results:
        head.append(Section([Code(result.model)] if several else "Result", _answer(result, images)))
    folds = [
        Fold("Where do the formats diverge?", of_each(results, lambda one: _parting(one, images))),
        Fold("Is length the cause?", of_each(results, tables.length_and_work)),
        Fold("What else changes the score?", of_each(results, lambda one: _effects(one, images))),
        Fold("How certain is the result?", of_each(results, _certainty)),
        Fold("What did it answer?", answers),
        Fold("How was it measured?", of_each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(results: Sequence[UtilizationResult]) -> dict[str, bytes]:
    """Return the pictures of each result as PNG, by file name."""
    pictures: dict[str, bytes] = {}
    for result in results:
        pictures[picture_file(result, "formats")] = plot_scores(result)
        for pair in result.comparisons:
            pictures[_difference_file(pair, result)] = plot_difference(pair, result)
        effects = plot_effects(result)
        if effects is not None:
            pictures[picture_file(result, "effects")] = effects
    return pictures


def picture_file(result: UtilizationResult, what: str) -> str:
    """Return a picture's file name: ``formats``, ``effects``, ``difference-jsonl-prose``."""
    return f"utilization-{what}-{slug(result.model)}.png"


def _difference_file(pair: FormatComparison, result: UtilizationResult) -> str:
    return picture_file(result, f"difference-{pair.a}-{pair.b}")


def _scores(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Block]:
    spans = []
    for curve in result.curves:
        scored = [scale for scale in curve.scales if scale.mean is not None]
        if curve.benchmark is None and scored:
            ends = " to ".join(
                f"{score(scale.mean)} at {scale.scale}" for scale in (scored[0], scored[-1])
            )
            spans.append(f"{format_name(curve.format)} from {ends}")
    alt = (
        "Mean score of each format over tokens of its text and over records, with fitted curves "
        f"and bands. {capitalised('; '.join(spans))}."
    )
    return picture(picture_file(result, "formats"), alt, there)


def _difference(
    pair: FormatComparison, result: UtilizationResult, there: Mapping[str, bytes]
) -> list[Block]:
    alt = (
        f"{capitalised(format_name(pair.a))} minus {format_name(pair.b)} over the scales, with a "
        f"band for all scales at once and the margin. {pair.pooled.divergence.sentence}"
    )
    return picture(_difference_file(pair, result), alt, there)


_MORE_WORK = 1.2
"""Ratio of relevant records from which the report says that there are more."""


def _work_sentence(result: UtilizationResult) -> str:
    low, high = result.needed_shortest, result.needed_longest
    set_to = f"evidence: {result.evidence}"
    if low is not None and high is not None:
        set_to = f"{low:,.1f} for a question at the shortest, {high:,.1f} at the longest; {set_to}"
    if result.evidence == "growing" and not (low and high and high <= _MORE_WORK * low):
        return (
            f"More records matter in longer documents ({set_to}): a falling score may come from "
            "length or from work; set evidence: fixed to separate them."
        )
    if result.evidence == "growing":
        return (
            "Evidence is set to grow, but at these scales as many records matter in long documents "
            f"as in short ones ({set_to}): a falling score comes from length, not from work."
        )
    if result.evidence == "fixed":
        return (
            f"As many records matter in long documents as in short ones ({set_to}): a falling "
            "score comes from length, not from work."
        )
    return ""


def _answer(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Block]:
    pair = headline_pair(result.comparisons)
    return [
        Bullets([Bracketed(sentence) for sentence in result.headline]),
        *_scores(result, there),
        *(_difference(pair, result, there) if pair else []),
        tables.formats(result),
        tables.lengths(result),
        *tables.arms(result),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _parting(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Section]:
    sections = []
    for pair in result.comparisons:
        first, *others = tables.comparison(pair, result)
        if pair is not headline_pair(result.comparisons):
            first = replace(first, blocks=[*first.blocks, *_difference(pair, result, there)])
        sections += [first, *others]
    return sections


def _effects(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Section]:
    if not result.effects:
        return []
    alt = (
        "Effect of each other condition on the mean score, with its interval, as in the table below"
    )
    figure = picture(picture_file(result, "effects"), alt, there)
    return [Section("Other conditions", [*figure, tables.effects(result)], 3)]


def _certainty(result: UtilizationResult) -> list[Section]:
    return [section for pair in result.comparisons for section in tables.certainty(pair)]


def _method(result: UtilizationResult) -> list[Section]:
    unit = "the same records in every format" if result.match == "content" else "the same tokens"
    facts = [
        f"Benchmarks: {', '.join(result.benchmarks)}; formats: {', '.join(result.formats)}; "
        f"scales: {', '.join(result.scales)} (tokens of the JSON rendering).",
        f"Formats at one scale have {unit} (match: {result.match}).",
        f"Tokens are counted by {result.tokenizer or 'an unnamed tokenizer'}.",
        f"{result.n:,} answers; intervals and bands at {level(result.confidence)}; formats count "
        f"as equal within {result.margin:.2g}; resampling seed {result.seed}.",
    ]
    return [Section("Method", [Bullets(facts)], 3)]


def write_utilization_report(
    run: StudyRun,
    results: Sequence[UtilizationResult],
    wrong: Sequence[WrongAnswer] | None,
    others: Sequence[Section],
) -> ReportFiles:
    """Write the page of a study without a length profile, with ``others`` at its end.

    ``wrong`` is None if the report may not show answers; they appear only in report.html.
    """
    from contextcliff_dagster.reporting.report_files import write_page

    how = f"contextcliff report {run.study.name} --campaign {run.campaign} --with-answers"
    pictures = draw_pictures(results)
    title = run.study.description or run.study.name

    def page(answers: Sequence[Section]) -> Page:
        content = utilization_page(results, answers, title=title, pictures=pictures)
        return Page(content.head, [*content.folds, *as_folds(others)])

    public = page(withheld(how))
    return write_page(
        public if wrong is None else page(examples_shown(wrong)),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=pictures,
        markdown=public.flat(),
        results=[to_json(result) for result in results],
    )
