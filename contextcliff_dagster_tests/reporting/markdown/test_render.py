"""One list of sections, three formats: what is not markup in the data is none in any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.reporting.length_profile.page import report_page
from contextcliff_dagster.reporting.markdown import as_json, as_markdown, as_page, as_text
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Bullets,
    Code,
    DataTable,
    Figure,
    Item,
    Lines,
    Paragraph,
    Section,
    Strong,
    map_texts,
)
from contextcliff_dagster_tests.support.records.reports import results_of, sample_pair

SECTIONS = [
    Section(
        ["About ", Code("m|1")],
        [
            Paragraph([Code("m"), ": ", Strong("no *drop*"), " at ", Bracketed("0.9 [0.8, 1.0]")]),
            Lines(["# one", "2. two [x](y)"]),
            Bullets(["- dash", Item(Code("m"), [("hash: ", Code("ab"))])]),
            DataTable(("bin", "n"), [[Code("b0|0"), 1_200], ["0.98", None]]),
            Figure(Path("deep/q.png"), "A [picture]"),
        ],
    )
]


def test_markdown_escapes_what_is_no_span() -> None:
    assert as_page(SECTIONS) == (
        "## About `m|1`\n\n"
        "`m`: **no \\*drop\\*** at 0.9 [0.8, 1.0]\n\n"
        "\\# one\n2&#8203;. two \\[x\\](y)\n\n"
        "- \\- dash\n- `m`\n    - hash: `ab`\n\n"
        "| bin | n |\n| --- | ---: |\n| `b0\\|0` | 1,200 |\n| 0.98 | – |\n\n"
        "![A \\[picture\\]](q.png)\n"
    )


def test_a_terminal_shows_the_same_words_without_markup() -> None:
    assert as_text(SECTIONS) == [
        "ABOUT m|1",
        "",
        "m: no *drop* at 0.9 [0.8, 1.0]",
        "",
        "# one",
        "2. two [x](y)",
        "",
        "- - dash",
        "- m",
        "    - hash: ab",
        "",
        "bin   n",
        "b0|0  1,200",
        "0.98  –",
    ]


NAMES = st.text(st.sampled_from("ab- "), max_size=40)


@given(
    st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=4),
    st.lists(NAMES, max_size=3),
    st.integers(50, 100),
)
def test_no_line_is_longer_than_the_terminal_and_no_word_is_lost(
    rows: list[tuple[str, str, str]], sentences: list[str], width: int
) -> None:
    blocks = [DataTable(("one", "two", "three"), rows, "A caption"), Bullets(sentences)]
    lines = as_text([Section("Title", blocks)], width)
    longest = max((len(word) for row in rows for cell in row for word in cell.split()), default=0)
    if longest * 3 + 4 <= width:
        assert max(map(len, lines)) <= width
    given_words = [word for row in rows for cell in row for word in cell.split()]
    given_words += [word for sentence in sentences for word in sentence.split()]
    shown = " ".join(lines).split()
    for word in set(given_words):
        assert shown.count(word) >= given_words.count(word)


def test_cells_that_do_not_fit_are_broken_between_words() -> None:
    row = ["JSON lines", "warehouse (ledger)", "at the floor from the start", 8_027]
    assert as_text([Section("T", [DataTable(("format", "of", "verdict", "cap"), [row])])], 44) == [
        "T",
        "",
        "format      of           verdict       cap",
        "JSON lines  warehouse    at the floor  8,027",
        "            (ledger)     from the",
        "                         start",
    ]


def test_programs_get_strings_and_numbers() -> None:
    (section,) = as_json(SECTIONS)
    assert (section["title"], section["level"]) == ("About m|1", 2)
    paragraph, lines, bullets, table, _ = section["blocks"]
    assert paragraph == {"kind": "paragraph", "text": "m: no *drop* at 0.9 [0.8, 1.0]"}
    assert lines["items"] == ["# one", "2. two [x](y)"]
    assert bullets["items"] == ["- dash", {"text": "m", "parts": ["hash: ab"]}]
    assert table["rows"] == [["b0|0", 1_200], ["0.98", None]]


def test_every_span_can_be_redacted() -> None:
    hidden = map_texts(SECTIONS, lambda text: "x")
    page = as_page(hidden)
    for shown in (
        "About",
        "m",
        "drop",
        "0.9",
        "one",
        "dash",
        "hash",
        "ab",
        "b0",
        "0.98",
        "picture",
    ):
        assert shown not in page


@pytest.mark.parametrize(
    "outside", ["[a](http://e.vil)", "[a][b]", "[a]: http://e.vil", "[`a`]", "<b>", "*d*", "~~e~~"]
)
def test_a_bracketed_span_is_as_strict_about_all_that_is_no_interval(outside: str) -> None:
    (*_, line) = as_markdown([Section("t", [Paragraph(Bracketed(outside))])])
    (*_, strict) = as_markdown([Section("t", [Paragraph(outside)])])
    assert line.replace("[b]", "\\[b\\]") == strict


def test_the_length_profile_is_shown_in_a_terminal_too() -> None:
    page = report_page(results_of(sample_pair()[0]), title="Study")
    text = "\n".join(as_text(page.flat(), width=1_000))
    assert text.startswith("STUDY\n\n- reference-short: cliff; keep documents at or below 382")
    assert "**" not in text
    assert "\\[" not in text
