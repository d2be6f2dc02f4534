"""Scores, tags and parsing in scripts that write no spaces between words, and other scripts' traps.

The rules of MLQA and MKQA are written here again from their papers, to compare with.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example, FailureTag
from contextcliff_dagster.scoring.containment import Haystack, contained
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    exact_match,
    normalize_answer,
    remove_punctuation,
    substitute,
    token_f1,
    word_count,
)
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.taxonomy import tag_failure
from contextcliff_dagster_tests.support.requirements import published_file

HAN = "厦门大学在年月日的是元法院公司不了人中国"
MARKS = list("。，、；：？！「」（）《》.,-")
SCRIPTS = {
    "chinese": HAN,
    "japanese": "東京都のひらがなカタカナーです",
    "thai": "กขคงจฉชดตนมยรลวสหอ",
    "russian": "абвгдежзик",
    "arabic": "ابتثجحخد",
    "korean": "가나다라마바사",
}
MIXED = st.lists(
    st.one_of(
        st.sampled_from([*HAN, *MARKS, " ", " "]),
        st.sampled_from(["nature", "GDP", "2013", "57081.86", "x"]),
    ),
    max_size=24,
).map("".join)
ANY_SCRIPT = st.sampled_from(sorted(SCRIPTS)).flatmap(
    lambda name: st.text(alphabet=[*SCRIPTS[name], *"ab12", " ", *MARKS], max_size=30)
)
ANY = st.one_of(MIXED, ANY_SCRIPT, st.text(max_size=40))


def f1_of(given: list[str], gold: list[str]) -> float:
    shared = sum((Counter(given) & Counter(gold)).values())
    return 2 * shared / (len(given) + len(gold)) if shared else 0.0


def mlqa_tokens(text: str) -> list[str]:
    """Lewis et al. 2020, for Chinese: ideographs one by one, the rest at white space."""
    tokens, word = [], ""
    for c in text.lower():
        if unicodedata.category(c).startswith("P") or c in string.punctuation:
            continue
        if "\u4e00" <= c <= "\u9fa5":
            tokens += [*word.split(), c]
            word = ""
        else:
            word += c
    return tokens + word.split()


@given(MIXED, MIXED)
def test_chinese_scores_are_those_of_mlqa(answer: str, gold: str) -> None:
    given, expected = mlqa_tokens(answer), mlqa_tokens(gold)
    if expected:
        assert exact_match(answer, [gold]) == float(given == expected)
        assert token_f1(answer, [gold]) == pytest.approx(f1_of(given, expected))


@given(st.text(alphabet=[*SCRIPTS["japanese"], *SCRIPTS["thai"], "、", "。"], max_size=20))
def test_japanese_and_thai_letters_are_tokens_as_in_mkqa(text: str) -> None:
    assert answer_tokens(text) == [c for c in text if c not in "、。"]


@pytest.mark.parametrize(
    ("answer", "gold", "em", "f1"),
    [
        ("厦门大学", "厦门大学。", 1, 1),
        ("在厦门大学举办", "厦门大学。", 0, 8 / 11),
        ("北京大学", "厦门大学。", 0, 0.5),
        ("10 万元", "１０万元。", 1, 1),
        ("2013 年 11 月 1 日", "2013年11月1日", 1, 1),
        ("2014年1月23日", "2014年1月24日", 0, 5 / 6),
        ("A股", "a 股", 1, 1),
        ("股", "A股", 0, 2 / 3),
        ("東京タワー", "東京", 0, 4 / 7),
        ("ﾄｳｷｮｳ", "トウキョウ", 1, 1),
        ("か\u3099", "が", 1, 1),
        ("が", "か", 0, 0),
        ("กรุงเทพ", "กรุงเทพมหานคร", 0, 2 * 6 / (6 + 12)),
        ("ที่", "ที", 0, 0),  # a tone mark makes another syllable
        ("ไทย\u200bแลนด์", "ไทยแลนด์", 1, 1),
        ("서울 은", "서울은", 0, 0),  # Korean has spaces
        ("서울 시", "서울 도", 0, 0.5),
        ("\u200fשלום\u200e עולם", "שלום עולם", 1, 1),
        ("القاهرة،", "القاهرة", 1, 1),
        ("❤\ufe0f", "❤", 1, 1),
        ("👍", "👎", 0, 0),
        ("x²", "x2", 0, 0),  # a power is not a digit
        ("co\u00adoperate", "cooperate", 1, 1),
        ("\ud800", "\ud800", 1, 1),
    ],
)
def test_written_examples(answer: str, gold: str, em: float, f1: float) -> None:
    assert exact_match(answer, [gold]) == em
    assert token_f1(answer, [gold]) == pytest.approx(f1)


@given(ANY, ANY)
def test_f1_is_symmetric_bounded_and_1_for_equal_texts(a: str, b: str) -> None:
    if normalize_answer(a) and normalize_answer(b):
        assert token_f1(a, [b]) == pytest.approx(token_f1(b, [a]))
        assert token_f1(a, [a]) == exact_match(a, [a]) == contained(a, [a]) == 1.0
    em, f1 = exact_match(a, [b]), token_f1(a, [b])
    assert 0.0 <= em <= f1 <= 1.0
    if em == 1.0:
        assert f1 == 1.0


@given(ANY_SCRIPT, st.lists(st.sampled_from(MARKS), max_size=3), st.integers(0, 30))
def test_punctuation_and_case_change_nothing(text: str, marks: list[str], at: int) -> None:
    if normalize_answer(text):
        punctuated = text[:at] + "".join(marks) + text[at:]
        assert token_f1(punctuated.upper(), [text]) == exact_match(punctuated, [text]) == 1.0


@given(st.text(alphabet=SCRIPTS["chinese"] + SCRIPTS["thai"], min_size=1, max_size=20), st.data())
def test_spaces_between_characters_change_nothing(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert exact_match(text[:at] + " " + text[at:], [text]) == 1.0


@given(ANY)
def test_tokens_are_what_normalising_leaves(text: str) -> None:
    tokens = answer_tokens(text)
    assert normalize_answer(text).split() == tokens
    assert word_count(text) >= 0


def test_a_mark_belongs_to_its_letter_where_an_answer_is_looked_up() -> None:
    assert contained("ตอบ: กิน", ["กิน"]) == 1.0
    assert contained("กิน", ["ก"]) == 0.0
    assert contained("２０１２，2013年", ["2012"]) == 1.0
    assert contained("12．5", ["12"]) == 0.0
    assert contained("大会在厦门大学举办。", ["厦门大学。"]) == 1.0
    assert contained("大会在北京大学举办。", ["厦门大学。"]) == 0.0


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("答案：厦门大学。", "厦门大学。"),
        ("**答案:** 厦门", "厦门"),
        ("答え：東京", "東京"),
        ("คำตอบ: กรุงเทพ", "กรุงเทพ"),
        ("정답: 서울", "서울"),
        ("「東京」", "東京"),
        ("答案在文中", "答案在文中"),
        ("。。。", None),
        ("——", None),
        ("「」", None),
        ("答案：", None),
    ],
)
def test_labels_and_quotes_are_taken_off(raw: str, text: str | None) -> None:
    assert parse_answer(raw).text == text


QUESTION = "全国美国文学研究会的第十八届年会在哪所大学举办的？"
DOCUMENT = (
    "全国美国文学研究会第十八届年会于2016年10月在厦门大学举办。会议由厦门大学外文学院承办，来自全国各地的"
    "代表参加了会议。北京大学的代表作了报告。被告未提供任何证据。"
)


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        ("。", FailureTag.EMPTY),
        ("文中没有提到在哪所大学举办。", FailureTag.REFUSAL),
        ("抱歉，我无法根据上下文回答这个问题。", FailureTag.REFUSAL),
        ("无法确定", FailureTag.REFUSAL),
        ("不知道。", FailureTag.REFUSAL),
        ("文章未明确提及年会的举办地点。", FailureTag.REFUSAL),
        ("資料に記載されていません。", FailureTag.REFUSAL),
        ("申し訳ありませんが、お答えできません。", FailureTag.REFUSAL),
        ("문서에 언급되지 않았습니다.", FailureTag.REFUSAL),
        ("ไม่มีข้อมูลในเอกสาร", FailureTag.REFUSAL),
        ("厦门", FailureTag.INCOMPLETENESS),
        ("北京大学（海淀校区", FailureTag.INCOMPLETENESS),
        ("北京大学、", FailureTag.INCOMPLETENESS),
        ("年会在厦门大学举办的", FailureTag.INSTRUCTION_DRIFT),
        ("会议由外文学院承办，来自全国各地的代表参加了会议，随后作了一系列报告，讨论十分热烈。" * 2,
         FailureTag.INSTRUCTION_DRIFT),
        ("今天天气很好我们去公园散步吃饭", FailureTag.INSTRUCTION_DRIFT),
        ("北京大学", FailureTag.WRONG_EVIDENCE),
        ("2016年", FailureTag.WRONG_EVIDENCE),
        ("被告未提供任何证据", FailureTag.WRONG_EVIDENCE),
        ("清华大学", FailureTag.HALLUCINATION),
        ("2015年", FailureTag.HALLUCINATION),
    ],
)  # fmt: skip
def test_failure_tags_in_scripts_without_spaces(raw: str, tag: FailureTag) -> None:
    parsed, accepted = parse_answer(raw), ("厦门大学。",)
    got = tag_failure(
        parsed,
        Example("e", "d", QUESTION, accepted, "qa"),
        document=lambda: Haystack(DOCUMENT),
        finish_reason="stop",
        holds_accepted=contained(parsed.visible, accepted) == 1.0,
    )
    assert got == tag


def test_every_published_chinese_answer_is_right_without_its_full_stop() -> None:
    file = published_file("longbench-multifieldqa_zh.first25.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 25
    for row in rows:
        (gold,) = row["answers"]
        assert exact_match(gold.rstrip("。"), [gold]) == 1.0
        if len(answer_tokens(gold)) > 4:
            assert 0.0 < token_f1(gold[: len(gold) // 2], [gold]) < 1.0
        assert token_f1(row["input"], [gold]) < 1.0


@given(
    st.text(),
    st.dictionaries(st.characters(max_codepoint=0x2FF), st.sampled_from(["", "\x00"])),
)
def test_substituting_is_translating(text: str, by: dict[str, str]) -> None:
    by.pop("\x00", None)
    for whole in (text, text * 200):  # characters are looked up in another way in a long one
        assert substitute(whole, by) == whole.translate(str.maketrans(by))


PIECES = ["the", "a", "An", "\u20ac", "+", " ", "\u00a0", "\u00e9", "\u0301", "x", "_"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_articles_go_where_a_word_begins_and_ends(text: str) -> None:
    lowered = remove_punctuation(unicodedata.normalize("NFC", text).lower())
    lowered = unicodedata.normalize("NFC", lowered)
    assert answer_tokens(text) == re.sub(r"\b(a|an|the)\b", " ", lowered).split()
