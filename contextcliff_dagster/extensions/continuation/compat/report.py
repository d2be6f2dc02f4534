"""Result and report of a compat study: Context-Tester's averages, without a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts.results.json_form import Missing
from contextcliff_dagster.extensions.continuation.compat.metrics import COHERENCE_KEYS, METRICS
from contextcliff_dagster.extensions.continuation.compat.result_files import ContextResult, Run
from contextcliff_dagster.extensions.continuation.compat.runs import (
    generations_of,
    run_of,
    was_repeated,
)
from contextcliff_dagster.extensions.continuation.compat.statistics import trend_analysis
from contextcliff_dagster.extensions.continuation.documents import section_of
from contextcliff_dagster.extensions.continuation.section import BUILT_IN
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Fold,
    Page,
    Paragraph,
    Section,
    as_folds,
)
from contextcliff_dagster.reporting.sections import pictures_of as drawn_pictures
from contextcliff_dagster.reporting.wording import unanswered_sentence
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.reporting.report_files import ReportFiles

_LIMITS = (
    "These are Context-Tester's figures, formula by formula. Its rule for degradation ignores "
    "chance: with passages of one novel in place of generations, so that nothing degrades, it "
    "still reports a degradation in 99% of runs. Leave out `compat` to get a conclusion with known "
    "error rates from the same text."
)
_CHANGED = {
    "cloze_score": "the cloze score",
    "vocabulary_diversity": "vocabulary diversity",
    "sentence_variance": "the variance of sentence lengths",
}
_STATES = {
    "open": "Rounds at {} tokens are missing; run the same command again.",
    "failed": "At {} tokens every batch had a round without an answer or below 60% of the "
    "requested length, so the size is left out.",
    "text too short": "The text is too short for {} tokens.",
}
_SHOWN = {
    "vocabulary_diversity": "vocabulary diversity",
    "cloze_score": "cloze score",
    "avg_sentence_length": "words per sentence",
    "bigram_repetition_rate": "repeated pairs of words",
}


def result_of(run: StudyRun, experiment: Experiment, model: str) -> dict[str, Any]:
    """Return the averages at each size, ready for JSON, without coherence (it needs a network).

    Raise as `generations_of`.
    """
    answers = generations_of(run, experiment, model)
    section = section_of(run.study)
    tally = run_of(run.study, answers, {}, None)
    measured = [m for m in METRICS if m not in COHERENCE_KEYS]
    sizes = [
        {
            "context_tokens": size,
            "state": answers.batches[size].state if size in answers.batches else "text too short",
            "asked": len(answers.rounds.get(size, ())),
            "replaced": len(answers.batches[size].replaced) if size in answers.batches else 0,
            "averages": {m: tally.averages[size][m] for m in measured if m in tally.averages[size]}
            if size in tally.averages
            else None,
        }
        for size in section.sizes
    ]
    return {
        "method": section.compat,
        "model": model,
        "study": run.study.name,
        "campaign": run.campaign,
        "rounds": section.rounds,
        "text": section.text_names[0],
        "text_repeated": was_repeated(run.study, run.store),
        "word_list": section.word_list,
        "sizes": sizes,
        "missing": asdict(answers.missing),
        "author": {m: tally.author[m] for m in measured if m in tally.author},
        **trend_analysis(tally.averages),
    }


def compat_page(results: Sequence[Mapping[str, Any]], title: str) -> Page:
    """Return the report: the rule's verdict and the picture, then the figures."""
    head = [Section(title, [Paragraph(_LIMITS)], 1)]
    for result in results:
        blocks: list[Block] = [Paragraph(_verdict(result))]
        blocks += [Bullets(points)] if (points := _points(result)) else []
        for name, png in pictures_of(result).items():
            blocks.append(Figure(Path(name), "Averages of four metrics over context size", png))
        head.append(Section([Code(str(result["model"]))], blocks, 2))
    figures = [
        Section([Code(str(result["model"]))], [_table(result), Bullets(_notes(result))], 3)
        for result in results
    ]
    return Page(head, [Fold("What are the averages?", figures)])


def pictures_of(result: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the picture of the averages by its file name; empty without a measured size."""
    from contextcliff_dagster.extensions.continuation.figures import plot_standard

    contexts = {
        row["context_tokens"]: ContextResult(row["context_tokens"], known_average=row["averages"])
        for row in result["sizes"]
        if row["averages"]
    }
    if not contexts:
        return {}
    run = Run({"model_name": result["model"]}, contexts, result["author"])
    return {f"continuation-averages-{slug(result['model'])}.png": plot_standard([run], 110)}


def write_compat_report(
    run: StudyRun, results: Sequence[Mapping[str, Any]], others: Sequence[Section]
) -> ReportFiles:
    """Write the page of a study without a length profile, then ``others``; raise StoreError."""
    from contextcliff_dagster.reporting.report_files import write_page

    page = compat_page(results, (run.study.description or run.study.name).removesuffix("."))
    return write_page(
        Page(page.head, [*page.folds, *as_folds(others)]),
        run.store.report_dir(run.study.name, run.campaign),
        pictures=drawn_pictures(page.head),
        results=list(results),
    )


def _verdict(result: Mapping[str, Any]) -> str:
    measured = [row["context_tokens"] for row in result["sizes"] if row["averages"]]
    missing = [row["context_tokens"] for row in result["sizes"] if not row["averages"]]
    without = f" (not measured: {', '.join(f'{size:,}' for size in missing)})" if missing else ""
    if len(measured) < 2:
        return f"By its rule: no verdict, because fewer than two sizes are measured{without}."
    found = "degradation" if result["degradation_points"] else "no degradation"
    return f"By its rule: {found} from {measured[0]:,} to {measured[-1]:,} tokens{without}."


def _points(result: Mapping[str, Any]) -> list[str]:
    return [
        f"At {point['context_length']:,} tokens {_CHANGED[point['metric']]} {point['direction']} "
        f"by {point['change']:.3g} from the size before."
        for point in result["degradation_points"]
    ]


def _table(result: Mapping[str, Any]) -> DataTable:
    shown = [metric for metric in _SHOWN if metric in result["author"]]
    rows: list[list[Cell]] = [
        [f"{row['context_tokens']:,}", *(_cell(row["averages"], metric) for metric in shown)]
        for row in result["sizes"]
    ]
    rows.append(["the author", *(_cell(result["author"], metric) for metric in shown)])
    caption = f"Averages of {result['rounds']} rounds at each window size, in tokens"
    return DataTable(["window", *(_SHOWN[metric] for metric in shown)], rows, caption)


def _cell(figures: Mapping[str, Any] | None, metric: str) -> str:
    value = (figures or {}).get(metric)
    return "-" if value is None else f"{value:.4g}"


def _notes(result: Mapping[str, Any]) -> list[str]:
    by_state: dict[str, list[str]] = {}
    for size in result["sizes"]:
        by_state.setdefault(size["state"], []).append(f"{size['context_tokens']:,}")
    replaced = sum(size["replaced"] for size in result["sizes"])
    notes = [
        text.format(", ".join(by_state[state]))
        for state, text in _STATES.items()
        if state in by_state
    ]
    asked = sum(size["asked"] for size in result["sizes"])
    missing = Missing(**result["missing"]) if "missing" in result else Missing.of(())
    notes += filter(None, [unanswered_sentence(missing, asked - missing.total)])
    if replaced:
        notes.append(f"Rounds that its rule treats as outliers and replaces: {replaced}.")
    if not result["word_list"]:
        notes.append("Without a word list there is no cloze score; `word_list: built-in` sets one.")
    elif result["word_list"] == BUILT_IN:
        notes.append(
            "The cloze score uses the built-in list of familiar words, not that of Dale and Chall: "
            "it is about a point higher."
        )
    if result["text_repeated"]:
        notes.append("The text is too short for the largest window and was repeated.")
    return notes
