"""The Markdown page says everything the contract holds, and nothing a name smuggles in."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.reporting.markdown import code, plain, table
from contextcliff_dagster_tests.support.records.reports import (
    page_of,
    results_of,
    sample,
    sample_pair,
)


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(results_of(sample_pair()[0]), title="Reference study", notes=["A note"])


def test_the_answer_stands_before_the_picture_and_the_tables(page: str) -> None:
    lines = page.splitlines()
    assert lines[0] == "# Reference study"
    assert lines[2].startswith(
        "- `reference-short`: **cliff**; keep documents at or below **382 tokens**"
    )
    assert page.index("keep documents") < page.index("![") < page.index("| model |")


@pytest.mark.parametrize(
    "section",
    [
        "## Warnings and notes",
        "## How sure is it?",
        "### Models",
        "### How to read this",
        "#### Bins",
        "#### Zones",
        "#### Caps by tolerance",
        "#### Sensitivity of the cap",
        "### What was not measured",
        "## What did it answer?",
        "#### Failures by tag",
        "## Other definitions",
        "#### Threshold rules",
        "#### Effective lengths by other definitions",
        "## Provenance",
    ],
)
def test_every_section_is_there(page: str, section: str) -> None:
    assert section in page.splitlines()


def test_every_bin_shows_its_tokens_its_n_and_its_interval(page: str) -> None:
    for result in sample_pair()[0]:
        for b in result["bins"]:
            tokens = f"{b['min_tokens']:,} / {b['median_tokens']:,} / {b['max_tokens']:,}"
            row = next(
                line
                for line in page.splitlines()
                if tokens in line and f"{b['mean']:.2f} [{b['ci_low']:.2f}" in line
            )
            assert f"| {b['n']} |" in row


def test_all_hashes_seeds_and_versions_are_in_the_provenance(page: str) -> None:
    for group in sample()[0]["provenance"].values():
        for value in group.values():
            assert f"`{value}`" in page


def test_tables_are_rectangular(page: str) -> None:
    blocks = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(blocks) > 10
    for block in blocks:
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}
        assert len(widths) == 1


def test_a_rule_that_cannot_fire_says_so(page: str) -> None:
    assert "| transition: SD at least 2 x the first bin's | cannot fire on these data |" in page


def test_unanswered_calls_are_counted_and_not_hidden() -> None:
    cliffs, _ = sample()
    cliffs.update(
        missing={"transport_error": 3, "invalid_truncated": 0, "context_overflow": 5},
        missing_share=0.04,
    )
    text = page_of(results_of([cliffs]))
    assert "5 context_overflow, 3 transport_error (4.0% of the planned calls)" in text


def test_no_result_is_a_page_too() -> None:
    assert "No model has a result yet." in page_of([])


HOSTILE = [
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "a|b",
    "`x` **bold** _it_",
    "![p](http://e.vil/p.png)",
    "http://e.vil",
    "line\n# heading",
    "~~gone~~ &lt;b&gt; $x$",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_a_name(name: str) -> None:
    """Rendered by a real CommonMark parser, every hostile name comes out as the text it is."""
    from markdown_it import MarkdownIt

    cliffs, _ = sample(name)
    cliffs["warnings"] = [name]
    text = page_of(results_of([cliffs]), title=name, notes=[name])
    html = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)
    assert "<script" not in html
    assert "<a " not in html
    assert html.count("<img ") == 1  # our own picture
    assert html.count("<h1>") == 1
    said = " ".join(name.split())
    escaped = said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<code>{escaped}</code>" in html
    assert f"<h1>{escaped}</h1>" in html


@given(st.text(max_size=40))
def test_escaped_text_renders_as_itself(text: str) -> None:
    from html import unescape

    from markdown_it import MarkdownIt

    renderer = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    tokens = renderer.parseInline(plain(text))[0].children or []
    assert all(t.type in ("text", "text_special") for t in tokens)
    # Words from right to left stand between isolates, which show nothing.
    read = re.sub("[\u200b\u2068\u2069]", "", unescape("".join(t.content for t in tokens)))
    assert read == unescape(shown)
    if shown:
        spans = renderer.parseInline(code(text))[0].children or []
        (span,) = (t for t in spans if t.content not in ("\u2068", "\u2069"))
        assert (span.type, span.content.strip()) == ("code_inline", shown.strip())


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_cell_can_break_its_table(a: str, b: str) -> None:
    from markdown_it import MarkdownIt

    lines = table(["x", "y"], [[code(a), plain(b)]])
    html = MarkdownIt("gfm-like", {"linkify": False}).render("\n".join(lines))
    assert html.count("<td>") == 2
