"""Result and report of a compat study: Context-Tester's averages, without a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.extensions.continuation.compat.metrics import COHERENCE_KEYS, METRICS
from contextcliff_dagster.extensions.continuation.compat.runs import (
    generations_of,
    run_of,
    was_repeated,
)
from contextcliff_dagster.extensions.continuation.compat.statistics import trend_analysis
from contextcliff_dagster.extensions.continuation.documents import section_of
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    DataTable,
    Paragraph,
    Section,
)

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun

_NO_VERDICT = (
    "These are Context-Tester's figures, formula by formula, without a verdict. Its rule for "
    "degradation ignores chance: with passages of one novel in place of generations, so that "
    "nothing degrades, it still reports a degradation in 99% of runs. Leave out `compat` to get "
    "a conclusion with known error rates from the same text."
)
_SHOWN = {
    "vocabulary_diversity": "vocabulary diversity",
    "cloze_score": "cloze score",
    "avg_sentence_length": "words per sentence",
    "bigram_repetition_rate": "repeated pairs of words",
}


def result_of(run: StudyRun, experiment: Experiment, model: str) -> dict[str, Any]:
    """Return the averages at each size, ready for JSON, without coherence (it needs a network).

    Raises:
        StudyError: the word list cannot be read.
        StoreError: outputs or documents are missing.
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
        "word_list": bool(section.word_list),
        "sizes": sizes,
        "author": {m: tally.author[m] for m in measured if m in tally.author},
        **trend_analysis(tally.averages),
    }


def compat_sections(results: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the report: the limits of the figures, then the figures."""
    return [
        Section("Prose by context size, as Context-Tester measures it",
                [Paragraph(_NO_VERDICT)], 2),
        *(_model_section(result) for result in results),
    ]  # fmt: skip


def _model_section(result: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [_table(result), Bullets(_notes(result))]
    return Section([Code(str(result["model"]))], blocks, 3)


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
    notes = _state_notes(by_state)
    if replaced:
        notes.append(f"Rounds that its rule treats as outliers and replaces: {replaced}.")
    if not result["word_list"]:
        notes.append("Without a word list there is no cloze score.")
    if result["text_repeated"]:
        notes.append("The text is too short for the largest window and was repeated.")
    notes.append(f"Degradation points by its rule: {len(result['degradation_points'])}.")
    return notes


def _state_notes(by_state: Mapping[str, Sequence[str]]) -> list[str]:
    words = {
        "open": "Rounds at {} tokens are missing; run the same command again.",
        "failed": "At {} tokens every batch had a round below 60% of the requested length, "
        "so the size is left out.",
        "text too short": "The text is too short for {} tokens.",
    }
    return [
        text.format(", ".join(by_state[state]))
        for state, text in words.items()
        if state in by_state
    ]
