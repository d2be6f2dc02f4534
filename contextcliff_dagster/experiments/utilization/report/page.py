"""The report on utilization as data: the answer first, what carries it folded by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.experiments.utilization.report import tables
from contextcliff_dagster.experiments.utilization.report.effects_figure import plot_effects
from contextcliff_dagster.experiments.utilization.report.figures import plot_formats
from contextcliff_dagster.experiments.utilization.results import UtilizationResult
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Code,
    Figure,
    Fold,
    Page,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import level
from contextcliff_dagster.store import slug

MADE = (
    "Lengths are made here, not natural: each document is generated to a number of tokens, from "
    "the same records in every format. The result says how a model reads records, not where it "
    "stops on documents of your own; that is what the length profile measures."
)


class WrongAnswer(NamedTuple):
    """One answer that scored 0, as the report shows it."""

    model: str
    cell: str
    question: str
    expected: str
    answer: str | None
    failure: str | None
    needed: int | None
    evidence_position: float | None


def utilization_page(
    results: Sequence[UtilizationResult],
    wrong: Sequence[WrongAnswer] = (),
    *,
    title: str,
    pictures: Mapping[str, bytes] | None = None,
) -> Page:
    """Return the page over one result a model; figures only of those in ``pictures``."""
    there = pictures or {}
    head = [Section(title, [Paragraph(MADE), *_work(results)], 1)]
    for result in results:
        head.append(
            Section([Code(result.model)] if len(results) > 1 else "Result", _answer(result, there))
        )
    folds = [
        Fold("Where do the formats part?", _each(results, _parting)),
        Fold("Is it length?", _each(results, _length)),
        Fold("What else changes the score?", _each(results, lambda one: _effects(one, there))),
        Fold("How sure is it?", _each(results, _certainty)),
        Fold("What did it answer?", tables.wrong_answers(wrong)),
        Fold("How was it measured?", _each(results, _method)),
    ]
    return Page(head, [fold for fold in folds if fold.sections])


def draw_pictures(results: Sequence[UtilizationResult]) -> dict[str, bytes]:
    """Return the pictures of each result as PNG, by the name of their file."""
    drawn: dict[str, bytes] = {}
    for result in results:
        drawn[picture_file(result, "formats")] = plot_formats(result)
        effects = plot_effects(result)
        if effects is not None:
            drawn[picture_file(result, "effects")] = effects
    return drawn


def picture_file(result: UtilizationResult, what: str) -> str:
    """The file of a result's picture: ``formats`` or ``effects``."""
    return f"utilization-{what}-{slug(result.model)}.png"


def _figure(
    result: UtilizationResult, what: str, alt: str, there: Mapping[str, bytes]
) -> list[Block]:
    file = picture_file(result, what)
    return [Figure(Path(file), alt)] if file in there else []


def _work(results: Sequence[UtilizationResult]) -> list[Block]:
    kinds = {result.evidence for result in results}
    said = []
    if "growing" in kinds:
        said.append(
            "More records matter in longer documents (evidence: growing): a falling score is of "
            "length and work together; the setting evidence: fixed keeps the work apart."
        )
    if "fixed" in kinds:
        said.append(
            "As many records matter in long documents as in short ones (evidence: fixed): a "
            "falling score is of length, not of work."
        )
    return [Paragraph(text) for text in said]


def _answer(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Block]:
    return [
        Bullets(list(result.headline)),
        *_figure(result, "formats", "Score of each format over length", there),
        tables.formats(result),
        *([Bullets(list(result.warnings))] if result.warnings else []),
    ]


def _each(results: Sequence[UtilizationResult], make: Any) -> list[Section]:
    sections: list[Section] = []
    for result in results:
        made: list[Section] = make(result)
        if made and len(results) > 1:
            sections.append(Section([Code(result.model)], (), 3))
            made = [Section(one.title, one.blocks, one.level + 1) for one in made]
        sections += made
    return sections


def _parting(result: UtilizationResult) -> list[Section]:
    return [section for pair in result.comparisons for section in tables.comparison(pair, result)]


def _length(result: UtilizationResult) -> list[Section]:
    return tables.length_and_work(result)


def _effects(result: UtilizationResult, there: Mapping[str, bytes]) -> list[Section]:
    if not result.effects:
        return []
    figure = _figure(result, "effects", "Effects of the other conditions", there)
    return [Section("Other conditions", [*figure, tables.effects(result)], 3)]


def _certainty(result: UtilizationResult) -> list[Section]:
    return [section for pair in result.comparisons for section in tables.certainty(pair, result)]


def _method(result: UtilizationResult) -> list[Section]:
    unit = "the same records in every format" if result.match == "content" else "the same tokens"
    facts = [
        f"Benchmarks: {', '.join(result.benchmarks)}; formats: {', '.join(result.formats)}; "
        f"scales: {', '.join(result.scales)} (tokens of the JSON rendering).",
        f"Formats at one scale have {unit} (match: {result.match}).",
        f"Tokens are counted by {result.tokenizer or 'an unnamed tokenizer'}.",
        f"{result.n:,} answers; intervals and bands at {level(result.confidence)}; formats count "
        f"as alike within {result.margin:.2g}; resampling seed {result.seed}.",
    ]
    return [Section("Method", [Bullets(facts)], 3)]
