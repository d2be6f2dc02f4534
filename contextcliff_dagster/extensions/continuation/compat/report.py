"""The result of a compat study and its report: Context-Tester's averages, without a verdict."""

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
    "These are the figures of Context-Tester, formula by formula, and no verdict. Its rule for "
    "degradation knows no chance: where passages of one novel stand in place of the generations, "
    "so that nothing degrades, it reports a degradation in 99% of the runs. Without `compat` the "
    "same text gives a conclusion with known error rates."
)
_SHOWN = {
    "vocabulary_diversity": "vocabulary diversity",
    "cloze_score": "cloze score",
    "avg_sentence_length": "words a sentence",
    "bigram_repetition_rate": "repeated pairs of words",
}


def result_of(run: StudyRun, experiment: Experiment, model: str) -> dict[str, Any]:
    """Return the averages of each size, JSON-ready; coherence needs the network and is not there.

    Raises:
        StudyError: the word list cannot be read.
        StoreError: outputs or documents are gone.
    """
    found = generations_of(run, experiment, model)
    section = section_of(run.study)
    made = run_of(run.study, found, {}, None)
    measured = [m for m in METRICS if m not in COHERENCE_KEYS]
    sizes = [
        {
            "context_tokens": size,
            "state": found.batches[size].state if size in found.batches else "text too short",
            "asked": len(found.rounds.get(size, ())),
            "replaced": len(found.batches[size].replaced) if size in found.batches else 0,
            "averages": {m: made.averages[size][m] for m in measured if m in made.averages[size]}
            if size in made.averages
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
        "author": {m: made.author[m] for m in measured if m in made.author},
        **trend_analysis(made.averages),
    }


def compat_sections(results: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Return the report: first what the figures cannot say, then the figures."""
    return [
        Section("Prose over the size of the context, as Context-Tester measures it",
                [Paragraph(_NO_VERDICT)], 2),
        *(_of_model(result) for result in results),
    ]  # fmt: skip


def _of_model(result: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [_table(result), Bullets(_notes(result))]
    return Section([Code(str(result["model"]))], blocks, 3)


def _table(result: Mapping[str, Any]) -> DataTable:
    shown = [metric for metric in _SHOWN if metric in result["author"]]
    rows: list[list[Cell]] = [
        [f"{one['context_tokens']:,}", *(_cell(one["averages"], metric) for metric in shown)]
        for one in result["sizes"]
    ]
    rows.append(["the author", *(_cell(result["author"], metric) for metric in shown)])
    caption = f"Averages of {result['rounds']} rounds at each size of the window, in tokens"
    return DataTable(["window", *(_SHOWN[metric] for metric in shown)], rows, caption)


def _cell(figures: Mapping[str, Any] | None, metric: str) -> str:
    value = (figures or {}).get(metric)
    return "-" if value is None else f"{value:.4g}"


def _notes(result: Mapping[str, Any]) -> list[str]:
    by_state: dict[str, list[str]] = {}
    for one in result["sizes"]:
        by_state.setdefault(one["state"], []).append(f"{one['context_tokens']:,}")
    replaced = sum(one["replaced"] for one in result["sizes"])
    notes = _state_notes(by_state)
    if replaced:
        notes.append(f"Rounds that were outliers by its rule and count no longer: {replaced}.")
    if not result["word_list"]:
        notes.append("Without a word list there is no cloze score.")
    if result["text_repeated"]:
        notes.append("The text is too short for the largest window and was repeated.")
    notes.append(f"Degradation points by its rule: {len(result['degradation_points'])}.")
    return notes


def _state_notes(by_state: Mapping[str, Sequence[str]]) -> list[str]:
    words = {
        "open": "At {} tokens rounds are still to be asked: run the same command again.",
        "failed": "At {} tokens no batch had all its rounds at 60% of the length that was asked "
        "for, so the size is left out.",
        "text too short": "The text does not reach {} tokens.",
    }
    return [
        text.format(", ".join(by_state[state]))
        for state, text in words.items()
        if state in by_state
    ]
