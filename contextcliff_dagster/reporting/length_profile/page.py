"""The length profile's page, its short version, and the overview of many models.

A model's answer is its verdict and cap, and the sentences that qualify them. The short version, for
Markdown, has what a reader needs first. The overview has every model's cap and intervals, a small
chart, and a link to the model's page.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.figures.attention import plot_attention
from contextcliff_dagster.reporting.figures.confounds import plot_questions
from contextcliff_dagster.reporting.figures.sensitivity import plot_sensitivity
from contextcliff_dagster.reporting.length_profile.scope import (
    confounds_sentence,
    definition_sections,
    gap_items,
    more_data_sections,
    provenance_section,
    rebuild_section,
    rule_sections,
    sensitivity_sections,
    shared_items,
    unmeasured_section,
)
from contextcliff_dagster.reporting.length_profile.tables import (
    READING,
    attention_sections,
    bin_sections,
    cap_sections,
    caps_table,
    failure_sections,
    few_data_blocks,
    lengths_of,
    models_section,
    question_sections,
    slowdown_sections,
    zone_sections,
)
from contextcliff_dagster.reporting.sections import (
    Block,
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Fold,
    Item,
    Lines,
    Page,
    Paragraph,
    Section,
    Span,
    Strong,
    Text,
    deeper,
)

_WHOLE = Code("report.html")


def answer_blocks(results: Sequence[Cliffs], names: Sequence[str]) -> list[Block]:
    """Return verdict and cap of every model, their comparison, and the meaning of the tolerance."""
    if not results:
        return [Paragraph("No model has a result yet.")]
    doubts = [result.score_doubt.replace("`", "") for result in results if result.score_doubt]
    blocks: list[Block] = [*map(Paragraph, doubts), Bullets(list(map(_answer, names, results)))]
    blocks += [
        Paragraph(text)
        for text in (wording.comparison(results), *wording.tolerance_sentences(results, names))
        if text
    ]
    return [*blocks, *few_data_blocks(results, names)]


def _answer(name: str, result: Cliffs) -> Text:
    """Return verdict, cap and the evidence of one model, a sentence each."""
    head = (Code(name), ": ", Strong(wording.VERDICT_PHRASE[result.verdict]))
    cap = result.safe_cap_tokens
    if cap is None:
        reason = wording.sentence(result.safe_cap_reason) or "the analysis gives no reason."
        support = f" is supported by {wording.amount(result)}: {reason}"
        return [*head, "; ", Strong("no safe cap"), support]
    prompt = result.cap_prompt_tokens
    as_prompt = (
        f" ({wording.tokens(prompt)} tokens as a prompt of the model)" if prompt is not None else ""
    )
    good = f", {words} up to there" if (words := wording.usefulness(result)) else ""
    octave = wording.last_octave_phrase(result)
    return [
        *head,
        "; keep documents at or below ",
        Strong(f"{wording.tokens(cap)} tokens"),
        f"{as_prompt}{good}. With {wording.level(result.confidence)} confidence, the "
        f"{wording.score_name(result)} stays within {wording.level(result.tolerance)} of its "
        "baseline ",
        Bracketed(wording.baseline_phrase(result)),
        f". Measured with {wording.amount(result)}",
        f"; just below the cap, {octave}." if octave else ".",
    ]


def warnings_section(
    results: Sequence[Cliffs],
    names: Sequence[str],
    notes: Sequence[str],
    *,
    most: int | None = None,
    rest: Span = _WHOLE,
) -> Section:
    """Return the warnings of all models, then the caller's ``notes``.

    ``most``: number shown; the others are counted, and ``rest`` names where they are.
    """
    by_model = [[wording.sentence(text) for text in result.warnings if text] for result in results]
    warnings = shared_items(by_model, names)
    items = [*warnings, *map(wording.sentence, notes)][:most]
    hidden = len(warnings) + len(notes) - len(items)
    blocks: list[Block] = [] if warnings else [Paragraph("None." if not notes else "No warnings.")]
    if items:
        blocks.append(Bullets(items))
    if hidden:
        blocks.append(Paragraph([f"{hidden:,} more are in ", rest, "."]))
    return Section("Warnings and notes" if notes else "Warnings", blocks)


def reading_section(results: Sequence[Cliffs]) -> Section:
    """Return the section that explains lengths, intervals, zones and the cap."""
    confidence = wording.level(results[0].confidence) if results else "the stated"
    tolerance = wording.level(results[0].tolerance) if results else "the stated share"
    items: list[Text] = [
        *dict.fromkeys(wording.LENGTHS_ARE[r.length_unit] for r in results),
        [
            "The ",
            Strong("safe cap"),
            f" is the largest length up to which the score stays within {tolerance} of its "
            f"baseline, at {confidence} confidence. It is a limit for this task and this serving "
            "configuration, not a ranking of models.",
        ],
        f"Numbers in square brackets are {confidence} intervals. Where there is none, the reason "
        "is next to the number. The data themselves chose the place of a drop, and the group that "
        "differs most: the intervals of their sizes are somewhat too short.",
        [
            Strong("Stable"),
            ", ",
            Strong("transition"),
            ", ",
            Strong("degraded"),
            ", ",
            Strong("not shown"),
            ": where the score is shown to stay within the tolerance, where it falls or may fall, "
            "where it stays low, and where none of this is shown.",
        ],
        [
            "A ",
            Strong("cliff"),
            " is a score that falls at one length, a ",
            Strong("gradual decline"),
            " one that falls along a line; a ",
            Strong("decline"),
            " may be either. None of them says how deep the score falls.",
        ],
        "What happens inside the model is not observed: the report shows where the score drops, "
        "not why.",
    ]
    return Section("How to read this", [Bullets(items)], 3)


def support_sections(result: Cliffs) -> list[Section]:
    """Return the section on the cap: reason, assumptions, and the midpoint of the drop."""
    lines = (
        wording.sentence(result.safe_cap_reason),
        wording.looks_sentence(result),
        wording.assumption_sentence(result),
        wording.half_drop_sentence(result),
    )
    return [Section("The cap", [Lines([text for text in lines if text])], 3)]


def _saying(
    title: str, *sentences: Callable[[Cliffs], str | None]
) -> Callable[[Cliffs], list[Section]]:
    """Return a function that makes a section of ``sentences``, or none if a result has none."""

    def sections(result: Cliffs) -> list[Section]:
        texts = [Paragraph(text) for make in sentences if (text := make(result))]
        return [Section(title, texts, 3)] if texts else []

    return sections


MOST_WARNINGS = 15
"""Maximum number of warnings on the short page; it counts the rest, which the full report shows."""
_SENTENCES: tuple[Callable[[Cliffs], str | None], ...] = (
    lambda result: wording.sentence(result.safe_cap_reason) if result.safe_cap_tokens else None,
    wording.looks_sentence,
    wording.assumption_sentence,
    wording.copies_sentence,
    confounds_sentence,
    wording.latency_limit_sentence,
    wording.joint_cap_sentence,
    wording.certify_sentence,
)


def summary_sections(
    cliffs: Sequence[Cliffs], *, title: str, notes: Sequence[str] = ()
) -> list[Section]:
    """Return the short page's sections; the first has the title.

    ``cliffs``: one contract result per model. ``notes``: the caller's sentences, shown with the
    warnings.
    """
    names = wording.labels(cliffs)
    picture = Figure(Path("report.png"), "Score and SD against natural document length")
    note = Paragraph(
        [
            "This page is the short version. ",
            Code("report.html"),
            " has the picture to explore and everything else: other explanations, kinds of "
            "failures, sensitivity, other definitions, provenance; ",
            Code("report.json"),
            " has everything in machine-readable form.",
        ]
    )
    head = Section(title, [*answer_blocks(cliffs, names), picture, note], 1)
    if not cliffs:
        return [head]
    return [
        head,
        Section("Caps", [caps_table(cliffs, [Code(name) for name in names])]),
        _meaning(cliffs, names),
        warnings_section(cliffs, names, notes, most=MOST_WARNINGS),
        _bins(cliffs, names),
        *_attention(cliffs, names),
        Section("What was not measured", [Bullets(gap_items(cliffs, names))]),
        rebuild_section(cliffs),
    ]


def _meaning(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return the section with each cap's qualifying sentences, grouped by model if several."""
    lists = [[text for make in _SENTENCES if (text := make(result))] for result in results]
    items: list[Text | Item] = [*lists[0]]
    if len(results) > 1:
        items = [Item(Code(name), texts) for name, texts in zip(names, lists, strict=True) if texts]
    return Section("What the cap means", [Bullets(items)] if items else [])


def _bins(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """Return a table with a row per bin if all models share bins, else per model and bin."""
    if not any(result.bins for result in results):
        return Section("Scores by length", [Paragraph("No bins.")])
    spans = [[(b.bin, lengths_of(b)) for b in result.bins] for result in results]
    by = "tokens: min / median / max"
    rows: list[list[Cell]]
    if all(span == spans[0] for span in spans):
        scores: list[list[Text]] = [
            [("n of ", Code(name)), ("mean of ", Code(name))] for name in names
        ]
        head: list[Text] = ["bin", by, *(cell for pair in scores for cell in pair)]
        if len(results) == 1:
            head = ["bin", by, "n", "mean"]
        rows = [
            [
                Code(row[0].bin),
                lengths_of(row[0]),
                *(cell for b in row for cell in (wording.tokens(b.n), _mean(b))),
            ]
            for row in zip(*(result.bins for result in results), strict=True)
        ]
        right: Sequence[int] = range(2, len(head), 2)
    else:
        head = ["model", "bin", by, "n", "mean"]
        rows = [
            [Code(name), Code(b.bin), lengths_of(b), wording.tokens(b.n), _mean(b)]
            for name, result in zip(names, results, strict=True)
            for b in result.bins
        ]
        right = (3,)
    blocks: list[Block] = [DataTable(head, rows, right=right)]
    return Section("Scores by length", blocks)


def _attention(results: Sequence[Cliffs], names: Sequence[str]) -> list[Section]:
    """Return the section on each model's attention; empty if none was measured."""
    items: list[Text | Item] = [
        Item(Code(name), wording.attention_sentences(result.attention))
        for name, result in zip(names, results, strict=True)
        if result.attention is not None
    ]
    if not items:
        return []
    figure = Figure(Path("attention.png"), "Attention entropy and shares over document length")
    return [Section("Attention", [Bullets(items), figure, Paragraph(READING)])]


def _mean(b: Any) -> Bracketed:
    return Bracketed(
        "no answers" if b.mean is None else wording.estimate(b.mean, b.ci_low, b.ci_high)
    )


OWN_BASELINE = "Caps against each model's own baseline"
MANY = 6
"""Maximum number of models on one page; if there are more, each gets its own page."""


def overview_page(
    cliffs: Sequence[Cliffs],
    linked: Sequence[Text],
    *,
    title: str,
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
) -> Page:
    """Return the overview. ``linked``: names linked to the models' pages; else as `report_page`.

    Models keep their order, because sorting by cap would rank models with overlapping intervals.
    """
    names = wording.labels(cliffs)
    words = [
        f"{len(cliffs)} models, in no order of merit: a cap is a bound at the stated confidence "
        "and depends on the number of examples. Each name links to the model's page.",
        *wording.tolerance_sentences(cliffs, names),
    ]
    if differing := wording.not_comparable(cliffs):
        words.append(f"Different {' and '.join(differing)}: not directly comparable.")
    if alarms := wording.false_alarms(cliffs):
        words.append(alarms)
    caps: list[Block] = [
        caps_table(cliffs, linked),
        *few_data_blocks(cliffs, names),
        Figure(Path("report.png"), "Score over length of each model, on the same axes"),
    ]
    folds = [
        Fold(CERTAINTY, [reading_section(cliffs), unmeasured_section(cliffs, names)]),
        Fold(PROVENANCE, [rebuild_section(cliffs, 3)]),
    ]
    if others := [section for section in sections if not section.first]:
        folds.append(Fold("Other experiments", others))
    warnings = warnings_section(cliffs, names, notes, most=MOST_WARNINGS, rest="the models' pages")
    first = [section for section in sections if section.first]
    head = [Section(title, [*map(Paragraph, words), *([] if first else caps)], 1), *first]
    if first:  # caps against another baseline than each model's own
        head.append(Section(OWN_BASELINE, caps, first=True))
    return Page([*head, warnings], folds)


Results = Sequence[Cliffs]

CAUSE = "Is it length?"
CERTAINTY = "How sure is it?"
ANSWERS = "What did it answer?"
ATTENTION = "What does attention show?"
MORE_DATA = "What would more data buy?"
DEFINITIONS = "Other definitions"
PROVENANCE = "Provenance"
QUESTIONS = (CAUSE, CERTAINTY, ANSWERS, ATTENTION, MORE_DATA, DEFINITIONS, PROVENANCE)
"""Readers' questions, in page order."""


class Picture(NamedTuple):
    """A picture next to the page: its file, its caption, and the function that draws it as PNG.

    ``draw`` takes all results and returns None if none has the data for it.
    """

    file: str
    alt: str
    draw: Callable[[Results], bytes | None]


class Part(NamedTuple):
    """Level-3 sections about one model that answer ``question``.

    The first model with such sections also shows ``picture``.
    """

    question: str
    sections: Callable[[Cliffs], list[Section]]
    picture: Picture | None = None


PARTS = (
    Part(CAUSE, _saying("Length or other questions", confounds_sentence)),
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
    Part(ANSWERS, _saying("Kind of work", wording.copies_sentence)),
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
    Part(MORE_DATA, _saying("Examples needed", wording.certify_sentence)),
    Part(MORE_DATA, more_data_sections),
    Part(
        DEFINITIONS,
        _saying("Limits by latency", wording.latency_limit_sentence, wording.joint_cap_sentence),
    ),
    Part(DEFINITIONS, slowdown_sections),
    Part(DEFINITIONS, rule_sections),
    Part(DEFINITIONS, definition_sections),
)


def all_pictures() -> list[Picture]:
    """Return the pictures of `PARTS`."""
    return [part.picture for part in PARTS if part.picture]


def report_page(
    cliffs: Results,
    *,
    title: str,
    notes: Sequence[str] = (),
    pictures: Container[str] = (),
    sections: Sequence[Section] = (),
) -> Page:
    """Return the full page; questions without an answer are left out.

    ``cliffs``: one contract result per model. ``notes``: the caller's sentences, shown with the
    warnings. ``pictures``: files of `all_pictures` that exist. ``sections``: further sections; the
    ones marked `first` follow the answer, the others go into the last fold.
    """
    names = wording.labels(cliffs)
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
    drawn_files: set[str] = set()
    folds = []
    for question in QUESTIONS:
        parts = [part for part in PARTS if part.question == question]
        answers: list[Section] = []
        for name, result in zip(names, cliffs, strict=True):
            of_model = [s for part in parts for s in _sections(part, result, pictures, drawn_files)]
            if of_model and len(cliffs) > 1:
                of_model = [Section(Code(name), level=3), *(replace(s, level=4) for s in of_model)]
            answers += of_model
        content = [*before.get(question, ()), *answers, *after.get(question, ())]
        if content:
            folds.append(Fold(question, content))
    if others := [section for section in sections if not section.first]:
        folds.append(Fold("Other experiments", deeper(others)))
    return Page(head, folds)


def _sections(
    part: Part, result: Cliffs, pictures: Container[str], shown: set[str]
) -> list[Section]:
    """Return one model's sections of ``part``; adds its picture unless it is in ``shown``."""
    sections, picture = part.sections(result), part.picture
    if sections and picture and picture.file in pictures and picture.file not in shown:
        shown.add(picture.file)
        figure = Figure(Path(picture.file), picture.alt)
        sections[-1] = replace(sections[-1], blocks=[*sections[-1].blocks, figure])
    return sections
