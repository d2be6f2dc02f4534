"""The length profile's page: the answer first, then everything that carries it, by question."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting.figures.attention import plot_attention
from contextcliff_dagster.reporting.figures.confounds import plot_questions
from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity
from contextcliff_dagster.reporting.length_profile.answer import (
    answer_blocks,
    cause_sections,
    latency_sections,
    need_sections,
    reading_section,
    support_sections,
    warnings_section,
    work_sections,
)
from contextcliff_dagster.reporting.length_profile.attention import attention_sections
from contextcliff_dagster.reporting.length_profile.questions import question_sections
from contextcliff_dagster.reporting.length_profile.robustness import (
    definition_sections,
    more_data_sections,
    rule_sections,
    sensitivity_sections,
)
from contextcliff_dagster.reporting.length_profile.scope import (
    provenance_section,
    rebuild_section,
    unmeasured_section,
)
from contextcliff_dagster.reporting.length_profile.tables import (
    bin_sections,
    cap_sections,
    failure_sections,
    models_section,
    slowdown_sections,
    zone_sections,
)
from contextcliff_dagster.reporting.sections import Code, Figure, Fold, Page, Section, deeper
from contextcliff_dagster.reporting.wording.sentences import labels

Results = Sequence[Cliffs]

CAUSE = "Is it length?"
CERTAINTY = "How sure is it?"
ANSWERS = "What did it answer?"
ATTENTION = "What does attention show?"
MORE_DATA = "What would more data buy?"
DEFINITIONS = "Other definitions"
PROVENANCE = "Provenance"
QUESTIONS = (CAUSE, CERTAINTY, ANSWERS, ATTENTION, MORE_DATA, DEFINITIONS, PROVENANCE)
"""What readers ask, in the order of the page."""


class Picture(NamedTuple):
    """A picture next to the page: its file, what it shows, and the PNG of all results.

    ``draw`` returns None where no result has what it shows.
    """

    file: str
    alt: str
    draw: Callable[[Results], bytes | None]


class Part(NamedTuple):
    """Sections about one model that answer ``question``, level 3.

    The first model that has any also shows the ``picture``.
    """

    question: str
    sections: Callable[[Cliffs], list[Section]]
    picture: Picture | None = None


PARTS = (
    Part(CAUSE, cause_sections),
    Part(
        CAUSE,
        question_sections,
        Picture(
            "questions.png", "The score against other properties of the questions", plot_questions
        ),
    ),
    Part(CERTAINTY, support_sections),
    Part(CERTAINTY, bin_sections),
    Part(CERTAINTY, zone_sections),
    Part(CERTAINTY, cap_sections),
    Part(
        CERTAINTY,
        sensitivity_sections,
        Picture(
            "sensitivity.png",
            "Safe cap and midpoint of the drop, one choice changed at a time",
            plot_sensitivity,
        ),
    ),
    Part(ANSWERS, work_sections),
    Part(ANSWERS, failure_sections),
    Part(
        ATTENTION,
        attention_sections,
        Picture(
            "attention.png",
            "Attention entropy next to the score, and shares of the attention, over length",
            plot_attention,
        ),
    ),
    Part(MORE_DATA, need_sections),
    Part(MORE_DATA, more_data_sections),
    Part(DEFINITIONS, latency_sections),
    Part(DEFINITIONS, slowdown_sections),
    Part(DEFINITIONS, rule_sections),
    Part(DEFINITIONS, definition_sections),
)


def all_pictures() -> list[Picture]:
    """The pictures of `PARTS`."""
    return [part.picture for part in PARTS if part.picture]


def report_page(
    cliffs: Results,
    *,
    title: str,
    notes: Sequence[str] = (),
    pictures: Container[str] = (),
    sections: Sequence[Section] = (),
) -> Page:
    """Return the whole page; a question that nothing answers is left out.

    ``cliffs``: one result of the contract per model. ``notes``: sentences of the caller, shown with
    the warnings. ``pictures``: those files of `all_pictures` that are there. ``sections``: further
    ones, those that are `first` after the answer, others in the last fold.
    """
    names = labels(cliffs)
    main = Figure(Path("report.png"), "Score and SD against natural document length")
    head = [
        Section(title, [*answer_blocks(cliffs, names), main], 1),
        *(section for section in sections if section.first),
        warnings_section(cliffs, names, notes),
    ]
    before = {CERTAINTY: [models_section(cliffs, names), reading_section(cliffs)]}
    after = {
        CERTAINTY: [unmeasured_section(cliffs, names)],
        PROVENANCE: [
            *([rebuild_section(cliffs, 3)] if cliffs else []),
            provenance_section(cliffs, names),
        ],
    }
    shown: set[str] = set()
    folds = []
    for question in QUESTIONS:
        parts = [part for part in PARTS if part.question == question]
        found: list[Section] = []
        for name, result in zip(names, cliffs, strict=True):
            own = [s for part in parts for s in _sections(part, result, pictures, shown)]
            if own and len(cliffs) > 1:
                own = [Section(Code(name), level=3), *(replace(s, level=4) for s in own)]
            found += own
        whole = [*before.get(question, ()), *found, *after.get(question, ())]
        if whole:
            folds.append(Fold(question, whole))
    if others := [section for section in sections if not section.first]:
        folds.append(Fold("Other experiments", deeper(others)))
    return Page(head, folds)


def _sections(
    part: Part, result: Cliffs, pictures: Container[str], shown: set[str]
) -> list[Section]:
    """The part's sections of one model; its picture once a page, noted in ``shown``."""
    made, picture = part.sections(result), part.picture
    if made and picture and picture.file in pictures and picture.file not in shown:
        shown.add(picture.file)
        figure = Figure(Path(picture.file), picture.alt)
        made[-1] = replace(made[-1], blocks=[*made[-1].blocks, figure])
    return made
