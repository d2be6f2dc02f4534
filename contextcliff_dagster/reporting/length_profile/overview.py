"""The page over many models: caps with their intervals, a small panel each, a link to each page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.length_profile.answer import reading_section, warnings_section
from contextcliff_dagster.reporting.length_profile.page import CERTAINTY, PROVENANCE
from contextcliff_dagster.reporting.length_profile.questions import few_data_blocks
from contextcliff_dagster.reporting.length_profile.scope import rebuild_section, unmeasured_section
from contextcliff_dagster.reporting.length_profile.summary import MOST_WARNINGS
from contextcliff_dagster.reporting.length_profile.tables import caps_table
from contextcliff_dagster.reporting.sections import (
    Block,
    Figure,
    Fold,
    Page,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording.sentences import false_alarms, labels, not_comparable
from contextcliff_dagster.reporting.wording.tolerance import tolerance_sentences

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

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
