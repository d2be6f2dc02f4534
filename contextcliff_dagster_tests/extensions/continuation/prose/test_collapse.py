"""Planted collapses are named, human prose is not, and an author's style is no collapse."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.continuation.prose.collapse import collapse_of, looped_words
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster_tests.extensions.continuation.prose.passages import (
    HARBOUR,
    ORCHARD,
    PASSAGES,
)
from contextcliff_dagster_tests.extensions.continuation.prose.typography import (
    TYPOGRAPHIES,
    Typography,
    set_in,
)
from contextcliff_dagster_tests.support.requirements import novels

WORDS = read_prose(ORCHARD).words
FRENCH = """Le matin était gris quand il descendit dans la rue, et il ne vit pas que la porte de la
maison était restée ouverte. Elle lui dit que le pain n'était pas pour les enfants, mais pour le
chien de la ferme, qui ne voulait plus rien manger depuis que son maître était parti. """
RUSSIAN = """Он вышел на улицу и долго стоял у ворот, не зная, куда ему идти. Снег уже сошёл, на
дороге блестели лужи, и старая лошадь соседа медленно тянула пустую телегу в сторону реки. Никто не
ответил ему, когда он окликнул возницу. """
JAPANESE = (
    "朝の港は静かだった。彼は船の前で長いあいだ待っていたが、誰も来なかった。"
    "空は灰色で、風は冷たく、遠くで犬が二度吠えた。「早いですね」と彼女は言い、"
    "温かい茶を差し出した。二人は何も話さず、島の教会の鐘が鳴るまで、波の音を聞いていた。"
)
HINDI = """सुबह बंदरगाह शांत था और वह बहुत देर तक नाव के पास खड़ा रहा। कोई नहीं आया, फिर भी उसने लौटने का
विचार नहीं किया। दूर किसी गाँव से घंटी की आवाज़ आई, और पानी पर हल्की धूप फैल गई।"""
DRIFT = " ".join(
    f"The {a} was {b}, and the people of the {a} were {b} too, as they had always been."
    for a in ("house", "street", "town", "river", "road", "field")
    for b in ("quiet", "old", "cold", "green")
)
GIBBERISH = " ".join(
    "".join(random.Random(i).choices("bcdfghjklmnprstvwz", k=3 + i % 7)) + "." * (i % 9 == 0)
    for i in range(150)
)


@pytest.mark.parametrize("text", PASSAGES)
def test_prose_is_no_collapse(text: str) -> None:
    assert collapse_of(text) == ""
    assert collapse_of(text, HARBOUR) == ""


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("empty", ""),
        ("empty", " \n\t"),
        ("empty", "The end."),
        ("garbage", "*&^%$#@!" * 20),
        ("garbage", ORCHARD[:300] + " }{[]@@##" * 30),
        ("garbage", "".join(ORCHARD[:300].split())),
        ("garbage", "�" * 80),
        *(
            ("garbage", ORCHARD[:300] + tail * 600)
            for tail in (" ...", ".", "—", '"', ", ", "\n", "\u200b")
        ),
        ("loop", ORCHARD[:300] + " and then" * 40),
        ("loop", ORCHARD[:300] + " It was the sea, it was the sea again." * 6),
        ("loop", "no " * 100),
        ("repetition", DRIFT),
        ("repetition", (ORCHARD[:500] + " ") * 2 + "And so it went."),
        ("language_switch", ORCHARD[:500] + FRENCH * 2),
        ("language_switch", ORCHARD[:500] + RUSSIAN),
        ("salad", GIBBERISH),
        ("runaway", " and ".join(sorted(set(WORDS) | set(read_prose(HARBOUR).words)))),
        ("chatter", "Sure! Here is the continuation of the story. " + ORCHARD),
        ("chatter", ORCHARD + " Let me know if you would like more."),
        ("chatter", ORCHARD[:400] + "<|im_end|> " + ORCHARD[400:]),
        ("chatter", "I'm sorry, but I cannot continue this story. " + ORCHARD),
    ],
)
def test_planted_collapses(tag: str, text: str) -> None:
    assert collapse_of(text, HARBOUR) == tag


def test_a_whole_text_in_another_language_is_a_switch_only_against_its_author() -> None:
    assert collapse_of(FRENCH, HARBOUR) == "language_switch"
    assert collapse_of(FRENCH) == ""
    assert collapse_of(FRENCH, FRENCH[120:] + FRENCH[:120]) == ""


@pytest.mark.parametrize("text", [JAPANESE, HINDI, RUSSIAN])
def test_prose_of_other_scripts_is_no_collapse(text: str) -> None:
    assert collapse_of(text) == ""
    assert collapse_of(text, text[: len(text) // 2]) == ""


def test_what_the_author_does_too_is_style() -> None:
    endless = " ".join(read_prose(HARBOUR + ORCHARD).words)
    assert collapse_of(endless) == "runaway"
    assert collapse_of(endless, HARBOUR) == "runaway"
    assert collapse_of(endless, endless) == ""
    assert collapse_of(endless + " on and on" * 30, endless) == "loop"


@given(st.sampled_from([*PASSAGES, DRIFT]), TYPOGRAPHIES)
def test_typography_is_no_collapse(text: str, look: Typography) -> None:
    assert collapse_of(set_in(text, look), HARBOUR) == collapse_of(text, HARBOUR)


@given(st.text(max_size=300))
def test_any_text_has_a_tag(text: str) -> None:
    assert isinstance(collapse_of(text), str)


@given(st.integers(1, 12), st.integers(3, 8), st.integers(0, 30))
def test_loops_of_any_period_are_measured(period: int, times: int, before: int) -> None:
    ids = np.concatenate([np.arange(1_000, 1_000 + before), np.tile(np.arange(period), times)])
    assert looped_words(ids) == period * (times - 1)


def test_at_most_1_in_1_000_passages_of_novels_is_called_a_collapse() -> None:
    wrong = count = 0
    for text in novels().values():
        words = text.split()
        for at in range(0, len(words) - 190, 4 * 190):
            wrong += collapse_of(" ".join(words[at : at + 190]), HARBOUR) != ""
            count += 1
    assert count > 500
    assert wrong <= count / 1_000
