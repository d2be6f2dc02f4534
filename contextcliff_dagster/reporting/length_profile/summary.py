"""The short page: what a reader needs before anything is opened, for Markdown.

The page over many models: caps with their intervals, a small panel each, a link to each page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.length_profile.answer import (
    answer_blocks,
    reading_section,
    warnings_section,
)
from contextcliff_dagster.reporting.length_profile.attention import READING
from contextcliff_dagster.reporting.length_profile.page import CERTAINTY, PROVENANCE
from contextcliff_dagster.reporting.length_profile.questions import few_data_blocks
from contextcliff_dagster.reporting.length_profile.robustness import confounds_sentence
from contextcliff_dagster.reporting.length_profile.scope import (
    gap_items,
    rebuild_section,
    unmeasured_section,
)
from contextcliff_dagster.reporting.length_profile.tables import caps_table
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
    Page,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording.latency import (
    joint_cap_sentence,
    latency_limit_sentence,
)
from contextcliff_dagster.reporting.wording.number_format import estimate, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    assumption_sentence,
    attention_sentences,
    certify_sentence,
    copies_sentence,
    false_alarms,
    labels,
    looks_sentence,
    not_comparable,
    sentence,
)
from contextcliff_dagster.reporting.wording.tolerance import tolerance_sentences

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs


MOST_WARNINGS = 15
"""Further ones are counted and left to the whole report."""
_SENTENCES: tuple[Callable[[Cliffs], str | None], ...] = (
    lambda result: sentence(result.safe_cap_reason) if result.safe_cap_tokens else None,
    looks_sentence,
    assumption_sentence,
    copies_sentence,
    confounds_sentence,
    latency_limit_sentence,
    joint_cap_sentence,
    certify_sentence,
)


def summary_sections(
    cliffs: Sequence[Cliffs], *, title: str, notes: Sequence[str] = ()
) -> list[Section]:
    """The short page's sections, the first with its title.

    ``cliffs``: one result of the contract per model. ``notes``: sentences of the caller, shown with
    the warnings.
    """
    names = labels(cliffs)
    picture = Figure(Path("report.png"), "Score and SD against natural document length")
    more = Paragraph(
        [
            "This page is the short version. ",
            Code("report.html"),
            " has the picture to explore and everything else: other explanations, kinds of "
            "failures, sensitivity, other definitions, provenance; ",
            Code("report.json"),
            " has all of it for programs.",
        ]
    )
    head = Section(title, [*answer_blocks(cliffs, names), picture, more], 1)
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
    """What qualifies each cap; one list where there is one model."""
    found = [[text for make in _SENTENCES if (text := make(result))] for result in results]
    items: list[Text | Item] = [*found[0]]
    if len(results) > 1:
        items = [Item(Code(name), own) for name, own in zip(names, found, strict=True) if own]
    return Section("What the cap means", [Bullets(items)] if items else [])


def _bins(results: Sequence[Cliffs], names: Sequence[str]) -> Section:
    """One table: a row for each bin where all models share them, else for each bin and model."""
    if not any(result.bins for result in results):
        return Section("Scores by length", [Paragraph("No bins.")])
    spans = [[_span(b) for b in result.bins] for result in results]
    by = "tokens: min / median / max"
    rows: list[list[Cell]]
    if all(one == spans[0] for one in spans):
        scores: list[list[Text]] = [
            [("n of ", Code(name)), ("mean of ", Code(name))] for name in names
        ]
        head: list[Text] = ["bin", by, *(cell for pair in scores for cell in pair)]
        if len(results) == 1:
            head = ["bin", by, "n", "mean"]
        rows = [
            [
                Code(own[0].bin),
                _span(own[0])[1],
                *(cell for b in own for cell in (tokens(b.n), _mean(b))),
            ]
            for own in zip(*(result.bins for result in results), strict=True)
        ]
        right: Sequence[int] = range(2, len(head), 2)
    else:
        head = ["model", "bin", by, "n", "mean"]
        rows = [
            [Code(name), Code(b.bin), _span(b)[1], tokens(b.n), _mean(b)]
            for name, result in zip(names, results, strict=True)
            for b in result.bins
        ]
        right = (3,)
    blocks: list[Block] = [DataTable(head, rows, right=right)]
    return Section("Scores by length", blocks)


def _attention(results: Sequence[Cliffs], names: Sequence[str]) -> list[Section]:
    """What attention says of each model; nothing where it was not measured."""
    said: list[Text | Item] = [
        Item(Code(name), attention_sentences(result.attention))
        for name, result in zip(names, results, strict=True)
        if result.attention is not None
    ]
    if not said:
        return []
    figure = Figure(Path("attention.png"), "Attention entropy and shares over document length")
    return [Section("Attention", [Bullets(said), figure, Paragraph(READING)])]


def _span(b: Any) -> tuple[str, str]:
    lengths = (tokens(n, "?") for n in (b.min_tokens, b.median_tokens, b.max_tokens))
    return b.bin, " / ".join(lengths)


def _mean(b: Any) -> Bracketed:
    return Bracketed("no answers" if b.mean is None else estimate(b.mean, b.ci_low, b.ci_high))


MANY = 6
"""More models than this have a page each, and this one over them."""


def overview_page(
    cliffs: Sequence[Cliffs],
    linked: Sequence[Text],
    *,
    title: str,
    notes: Sequence[str] = (),
    sections: Sequence[Section] = (),
) -> Page:
    """Return the page. ``linked``: each model's name, leading to its page; else as `report_page`.

    The models keep their order: a list by cap would rank what intervals do not tell apart.
    """
    names = labels(cliffs)
    words = [
        f"{len(cliffs)} models, in no order of merit: a cap is a bound at stated confidence and "
        "moves with the number of examples. Each name leads to the model's own page.",
        *tolerance_sentences(cliffs, names),
    ]
    if differing := not_comparable(cliffs):
        words.append(f"Different {' and '.join(differing)}: not directly comparable.")
    if alarms := false_alarms(cliffs):
        words.append(alarms)
    head: list[Block] = [
        *map(Paragraph, words),
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
    return Page([Section(title, head, 1), *first, warnings], folds)
