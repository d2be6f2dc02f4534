"""Texts and their figures, where the sample of the reference has no case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.continuation.compat.metrics import (
    FUNCTION_WORDS,
    METRICS,
    familiar_words,
    sentences_of,
    text_metrics,
    without_tags,
    words_of,
)

FAMILIAR = familiar_words("The\ndog\n\n ran \ncat\nsat\n")

# What beautifulsoup4 4.15 gives with `html.parser`; 40,000 random mixtures of such pieces agreed.
MARKED_UP = {
    "One<br>two <i>three</i>.": "Onetwo three.",
    "AT&T &amp; &lt;b&gt; &bogus; x": "AT&T & <b> &bogus x",
    "caf&eacute; &#8217; &#x2019; &#146; &#0;": "café ’ ’ ’ \ufffd",
    "a<script>x < y</script>b<!-- c -->d<style>s</style>": "abd",
    "3 < 4 and 5 > 4": "3 < 4 and 5 > 4",
    "<![CDATA[kept]]><!DOCTYPE html>": "kept",
    "x<template>t<b>u</b></template>y": "xy",
}


@pytest.mark.parametrize("text", MARKED_UP)
def test_tags_are_dropped_as_the_reference_drops_them(text: str) -> None:
    assert without_tags(text) == MARKED_UP[text]


@given(st.text(alphabet=st.sampled_from("ab<>&;/!-# \n\"'.?")))
def test_any_text_has_all_figures(text: str) -> None:
    figures = text_metrics(text, FAMILIAR, lambda sentences: [[1.0, len(s)] for s in sentences])
    assert tuple(figures) == METRICS
    assert figures["word_count"] == len(words_of(text)) or not text.strip()
    assert all(value == value for value in figures.values())


def test_blank_text_is_easy_and_empty() -> None:
    figures = text_metrics(" \n\t", FAMILIAR, lambda _: None)
    rest = {key: value for key, value in figures.items() if value != 0}
    assert rest == {"cloze_score": 64.0, "reading_level": "1"}


def test_punctuation_may_leave_an_empty_word() -> None:
    assert words_of('He said - "." (Yes.)') == ["he", "said", "-", "", "yes"]
    assert sentences_of("3.5 men.\nGo!") == ["3.", "5 men.", "Go!"]
    assert len(FUNCTION_WORDS) == 96


def test_moving_diversity_slides_over_a_hundred_words() -> None:
    words = ["the"] * 100 + ["dog"]
    # Two windows: one distinct word, then two.
    assert text_metrics(" ".join(words), FAMILIAR)["unique_word_ratio_100"] == 0.015


@given(st.lists(st.sampled_from(["dog", "cat", "the", "ran", "sat"]), min_size=3, max_size=140))
def test_sliding_counts_are_those_of_whole_windows(words: list[str]) -> None:
    size = min(100, len(words))
    windows = [words[k : k + size] for k in range(len(words) - size + 1)]
    mean = sum(len(set(window)) for window in windows) / size / len(windows)
    figure = text_metrics(" ".join(words), FAMILIAR)["unique_word_ratio_100"]
    assert figure == pytest.approx(mean, abs=0.51e-4)
