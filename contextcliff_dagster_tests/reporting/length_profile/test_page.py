"""The page by question: the answer first, and nothing of what a report ever said is lost."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from contextcliff_dagster.reporting.length_profile.page import (
    ATTENTION,
    PARTS,
    QUESTIONS,
    all_pictures,
    report_page,
)
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.sections import Code, Page, Paragraph, Section
from contextcliff_dagster_tests.support.records.reports import results_of, sample, sample_pair

EARLIER = Path(__file__).parents[2] / "support" / "records" / "page_of_0_1_0"

NAMED = "- `smollm2-135m`: "
"""One model needs neither name nor heading of its own on its page any more."""


def earlier() -> Page:
    """Today's page of a real result whose page of version 0.1.0 is kept."""
    report = json.loads((EARLIER / "report.json").read_text("utf-8"))
    return report_page(
        results_of(report["models"]),
        title=report["title"],
        notes=report["notes"],
        pictures=[picture.file for picture in all_pictures()],
    )


def without_order(line: str) -> tuple[str, ...]:
    """A line without heading marks; of a table's row the cells in any order of the columns."""
    return tuple(sorted(line.split(" | "))) if "|" in line else (line.lstrip("# "),)


def test_every_line_of_the_earlier_page_is_in_this_one() -> None:
    now = {without_order(line.strip("| ")) for line in as_page(earlier().flat()).splitlines()}
    text = (EARLIER / "report.md").read_text("utf-8")
    # Brackets are intervals only.
    before = re.sub(r"\[([\w,]+), ([\w,]+), ([\w,]+)\]", r"\1 / \2 / \3", text)
    before = before.replace("tokens min", "tokens: min").splitlines()
    said = [(line, line.replace(NAMED, "- ")) for line in before if set(line) - set("|-: ")]
    lost = [
        line
        for line, unnamed in said
        if not {without_order(text.strip("| ")) for text in (line, unnamed)} & now
    ]
    # Zones count their examples, no longer those of bins; no large drop is what "no drop" was.
    # What more data buy is compared with no second cap of the same data. Beside the cap stands how
    # often the answers up to it are right.
    renamed = (
        "| zone |", "| stable |", "| transition |", "| degraded |", "| score | token F1 |",
        "### Expected gain from more data", "| extra tokens", "| 1,000,000 tokens", "Simulated, ",
        "The zones are derived", "| MECW", "| longest length before a drop of more", "Joint cap",
        "| model | verdict | safe cap", "| `smollm2-135m` |", "- `smollm2-135m`: No call",
        "- `smollm2-135m`: **gradual decline**; keep",
    )  # fmt: skip
    assert sum(line.startswith(renamed) for line in lost) == len(renamed)
    others = (line for line in lost if not line.startswith(renamed))
    cap, brackets, zones, heading, assumed, promise, none, mix = others
    # These have plainer words now.
    reworded = {cap: "- The **safe cap** is", zones: "- **Stable**", none: "| 10% | none"}
    reworded[brackets] = "- Numbers in square brackets"
    assert all(line.startswith(head) for line, head in reworded.items())
    assert assumed.startswith("The cap assumes that")
    assert heading == "## `smollm2-135m`"
    # The reason stands alone now.
    assert without_order(promise.partition("cannot be promised. ")[2]) in now
    # A list of shares is now divided by semicolons, each share behind a colon.
    today = re.sub(r"(\d\d%) (\d+\.\d%)", r"\1: \2", mix).replace("%, ", "%; ")
    assert without_order(today) in now
    assert len(before) == 222


def test_the_questions_come_in_their_order_and_each_has_an_answer() -> None:
    known = [question for question in QUESTIONS if question != ATTENTION]  # it was not measured
    assert [fold.question for fold in earlier().folds] == known
    page = report_page(results_of(sample_pair()[0]), title="t")
    asked = [fold.question for fold in page.folds]
    assert asked == [question for question in QUESTIONS if question in asked]
    assert len(asked) >= 4  # these results know neither a mix of questions nor what more data buys
    assert all(fold.sections for fold in page.folds)


def test_every_part_answers_a_question() -> None:
    assert {part.question for part in PARTS} == set(QUESTIONS) - {"Provenance"}


@pytest.mark.parametrize("models", [1, 2])
def test_headings_go_one_level_at_a_time(models: int) -> None:
    sections = report_page(results_of(sample_pair()[0][:models]), title="t").flat()
    levels = [section.level for section in sections]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    own = [s.title for s in sections if isinstance(s.title, Code)]
    assert (Code("reference-short") in own) == (Code("reference-long") in own) == (models > 1)


def test_warnings_are_seen_without_opening_anything() -> None:
    cliffs = sample_pair()[0]
    cliffs[1]["warnings"] = ["the server cut two prompts"]
    head = report_page(results_of(cliffs), title="t", notes=["measured twice"]).head
    text = as_page(head)
    assert "- `reference-long`: the server cut two prompts." in text
    assert "- measured twice." in text


def test_other_experiments_have_a_fold_of_their_own() -> None:
    own = Section("Sizes", [Paragraph("Three.")])
    page = report_page(results_of([sample()[0]]), title="t", sections=[own])
    assert page.folds[-1].question == "Other experiments"
    assert page.folds[-1].sections == [Section("Sizes", [Paragraph("Three.")], 3)]
