"""The HTML page: whatever a user named or a model answered is text in it; it fetches nothing."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.reporting.html.render import (
    Interactive,
    html_page,
    script_json,
    sections_html,
    visible,
)
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Bullets,
    Code,
    DataTable,
    Figure,
    Fold,
    Item,
    Lines,
    Paragraph,
    Section,
    Strong,
    as_folds,
)

VOID = {"meta", "br", "img", "input"}
HOSTILE = (
    "</script><script>alert(1)</script>", "<!--", "]]>", "<img src=x onerror=alert(1)>", "\x1b[31m",
    "\u202egnp.exe", "</b>", "\u2028", '" onload="x', "'", "&amp;", "data:text/html,x", "\ud800"
)  # fmt: skip
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=12), max_size=4).map("".join)


class Outline(HTMLParser):
    """Tags, attributes and text as a browser would find them; every tag must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def every_block(word: str) -> list[Section]:
    blocks: list[Any] = [
        Paragraph([word, Code(word), Strong(word), Bracketed(word)]),
        Lines([word, word]),
        Bullets([word, Item(word, [Code(word)])]),
        DataTable([word, "n"], [[word, 1], [Code(word), None], [Bracketed(word), 0.5]], word),
        Figure(Path("own.png"), word),
    ]
    return [Section(word, blocks, 1), Section(Code(word), blocks, 3), Section(word, blocks)]


def page_with(word: str) -> str:
    folds = [Fold(word, every_block(word)), *as_folds(every_block(word))]
    pictures = {"own.png": b"x"}
    return html_page(
        word, sections_html(every_block(word)), folds, Interactive({"w": word}), pictures
    )


PLAIN = [tag for tag, _ in Outline(page_with("word")).tags]


@given(texts)
def test_no_text_becomes_a_tag_or_an_attribute(word: str) -> None:
    outline = Outline(page_with(f"w{visible(word)}w"))
    assert [tag for tag, _ in outline.tags] == PLAIN
    assert not [a for _, attributes in outline.tags for a in attributes if a.startswith("on")]
    page_with(word).encode()


@given(texts)
def test_data_in_the_page_are_what_they_were(word: str) -> None:
    shown = visible(word)
    written = script_json({"w": shown})
    assert json.loads(written) == {"w": shown}
    assert not re.search("[<>&\u2028\u2029]", written)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    assert visible(shown) == shown


def test_a_page_lets_in_nothing_but_its_own_style_and_scripts() -> None:
    page = html_page("t", "", [])
    policy = next(a["content"] for tag, a in Outline(page).tags if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for name in ("style", "script"):
        (content,) = re.findall(rf"<{name}>(.*?)</{name}>", page, re.S)
        hashed = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{hashed}'" in policy
    assert not re.search(r"""(src|href|action)=["'](?!data:)|@import|url\(|://""", page)
    assert "style=" not in page


def test_headings_go_down_one_level_at_a_time() -> None:
    sections = [Section("a", (), 1), Section("b", (), 3), Section("c", (), 3), Section("d")]
    assert re.findall(r"<h(\d)>", sections_html(sections)) == ["2", "3", "3", "3"]
    deep = [Section(""), Section("a", (), 3), Section("b", (), 4), Section("c", (), 3)]
    assert re.findall(r"<h(\d)>", sections_html(deep, below=2)) == ["3", "4", "3"]


@given(st.lists(st.integers(1, 6)))
def test_no_heading_is_two_levels_below_the_one_before(levels: list[int]) -> None:
    sections = [Section("a", (), level) for level in levels]
    ranks = [2, *map(int, re.findall(r"<h(\d)>", sections_html(sections, below=2)))]
    assert len(ranks) == len(levels) + 1
    assert all(after <= before + 1 for before, after in pairwise(ranks))


def test_sections_become_one_question_each() -> None:
    sections = [Section("a"), Section("b", (), 3), Section(["c ", Code("d")])]
    folds = as_folds(sections)
    assert [fold.question for fold in folds] == ["a", "c d"]
    assert [section.title for section in folds[0].sections] == ["", "b"]


def test_short_words_of_a_cell_stay_on_a_line_and_long_ones_have_room() -> None:
    rows = [["0 to 20%", "at the floor from the start", 3, Code("a-name-of-a-model")]]
    page = sections_html([Section("T", [DataTable(["place", "verdict", "n", "model"], rows)])])
    assert '<th scope="row" class="short">0 to 20%</th>' in page
    assert '<td class="long">at the floor from the start</td><td class="n">3</td>' in page
    assert '<td class="long"><code>a-name-of-a-model</code></td>' in page
    unnamed: Any = None  # of a file of scores
    assert "not stated" in sections_html([Section("T", [DataTable(["m"], [[Code(unnamed)]])])])
