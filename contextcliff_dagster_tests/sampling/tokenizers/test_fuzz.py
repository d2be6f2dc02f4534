"""Exactness: the fast counts are the reference library's on texts made to tell them apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextcliff_dagster.sampling.tokenizers.server import CHECK_TEXTS
from contextcliff_dagster.sampling.tokenizers.tokenizers import CARRIED, TokenizerJson
from contextcliff_dagster_tests.support.files.vocabularies import (
    BY_FASTOKENS,
    opened,
    random_text,
    train,
)

ENCODINGS = ("cl100k_base", "o200k_base", "o200k_harmony")
SCRIPTS = {
    "latin": (0x41, 0x24F),
    "combining": (0x300, 0x36F),
    "greek and cyrillic": (0x370, 0x52F),
    "hebrew": (0x591, 0x5F4),
    "arabic": (0x600, 0x6FF),
    "indic": (0x900, 0xDFF),
    "thai": (0xE01, 0xE5B),
    "hangul": (0xAC00, 0xD7A3),
    "kana and han": (0x3040, 0x9FFF),
    "punctuation": (0x2000, 0x206F),
    "symbols": (0x2100, 0x2BFF),
    "emoji": (0x1F300, 0x1FAFF),
    "mathematical": (0x1D400, 0x1D7FF),
    "private and special": (0xE000, 0xFFFF),
    "control": (0x00, 0x20),
    "latin controls": (0x7F, 0xA0),
    "surrogates": (0xD800, 0xDFFF),
    "tags": (0xE0000, 0xE007F),
}
JOINTS = (
    *("", " ", "  ", "\n", "\r\n", "\t", "\u200d", "\u200c", "\ufe0f", "\u0301", "'", "’"),
    *("'s", "'S", "'ſ", "'ll", "'LL", "'re", "ſ", "\u00a0", "\u2028", "\x85", "\x00", "."),
    *("<|endoftext|>", "<|im_start|>", "<s>", "0", "000", "A", "a", "aB", "中", "_", "/*"),
)
long_runs = st.builds(
    lambda unit, n, end: unit * n + end,
    st.sampled_from([" ", "\n", "\t", "\r\n", "a", "A", "ſ", "0", "9", ".", "=", "中", "ก", "🙂"]),
    st.sampled_from([2, 3, 15, 16, 17, 80, 81, 255, 700]),
    st.sampled_from(JOINTS),
)


@st.composite
def script_texts(draw: st.DrawFn) -> str:
    """Characters of one script, joined by what splits or binds."""
    low, high = SCRIPTS[draw(st.sampled_from(sorted(SCRIPTS)))]
    letters = st.text(st.characters(min_codepoint=low, max_codepoint=high, categories=None))
    parts = draw(st.lists(letters | st.sampled_from(JOINTS) | long_runs, max_size=20))
    return "".join(parts)


any_text = script_texts() | st.text(st.characters(categories=None), max_size=80)


def crafted(seed: int, number: int) -> list[str]:
    """Texts of all scripts at random, with the joints, from a seed."""
    rng = random.Random(seed)
    ranges = list(SCRIPTS.values())
    made = list(CHECK_TEXTS)
    for _ in range(number):
        low, high = rng.choice(ranges)
        parts = []
        for _ in range(rng.randrange(1, 60)):
            letters = (chr(rng.randint(low, high)) for _ in range(rng.randrange(6)))
            parts += ["".join(letters), rng.choice(JOINTS) * rng.choice((1, 1, 1, 2, 9))]
        made += ["".join(parts), random_text(rng, rng.randrange(1, 80))]
    return made


def wrong_counts(ours: Any, wanted: list[int], texts: list[str]) -> list[tuple[str, int, int]]:
    counted = zip(texts, ours.count_many(texts), wanted, strict=True)
    return [(text, got, want) for text, got, want in counted if got != want]


def test_every_encoding_that_needs_no_network_is_tried_here() -> None:
    assert set(ENCODINGS) == CARRIED


@pytest.mark.parametrize("name", ENCODINGS)
@given(text=any_text)
def test_any_text_counts_as_tiktoken_counts_it(name: str, text: str) -> None:
    ours, reference = opened(name)
    assert ours.count(text) == len(reference.encode_ordinary(text))


@pytest.mark.parametrize("name", ENCODINGS)
def test_crafted_texts_count_as_tiktoken_counts_them(name: str) -> None:
    ours, reference = opened(name)
    texts = crafted(1, 400)
    assert not wrong_counts(ours, [len(reference.encode_ordinary(text)) for text in texts], texts)


@pytest.mark.parametrize("name", ENCODINGS)
def test_many_crafted_texts_count_as_tiktoken_counts_them(name: str) -> None:
    ours, reference = opened(name)
    texts = crafted(2, 25 * settings().max_examples)
    assert not wrong_counts(ours, [len(reference.encode_ordinary(text)) for text in texts], texts)


@cache
def of_kind(kind: str, folder: Path) -> tuple[Any, Any]:
    corpus = [text.encode("utf-8", "ignore").decode() for text in crafted(3, 150)]
    reference = train(kind, folder / f"{kind}.json", corpus)
    ours = TokenizerJson(kind, folder / f"{kind}.json")
    ours.compare()
    assert ours.counted_by.startswith("fastokens")
    return ours, reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("vocabularies")
    of_kind.cache_clear()


def of_hugging_face(reference: Any, texts: list[str]) -> list[int]:
    return [len(one) for one in reference.encode_batch(texts, add_special_tokens=False)]


@pytest.mark.parametrize("kind", BY_FASTOKENS)
@given(text=any_text)
def test_any_text_counts_as_hugging_face_counts_it(kind: str, folder: Path, text: str) -> None:
    ours, reference = of_kind(kind, folder)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert [ours.count(text)] == of_hugging_face(reference, [text])


@pytest.mark.parametrize("kind", BY_FASTOKENS)
def test_many_crafted_texts_count_as_hugging_face_counts_them(kind: str, folder: Path) -> None:
    ours, reference = of_kind(kind, folder)
    texts = [
        text.encode("utf-8", "replace").decode()
        for text in crafted(4, 10 * settings().max_examples)
    ]
    assert not wrong_counts(ours, of_hugging_face(reference, texts), texts)


def test_halves_of_surrogate_pairs_count_as_tiktoken_counts_them() -> None:
    ours, reference = opened("o200k_base")
    for text in ("\ud800", "a\udc00b", "\ud83d\ude42", "\ude42\ud83d", "x" * 10 + "\udfff"):
        assert ours.count(text) == len(reference.encode_ordinary(text))
    assert ours.count("\ud83d\ude42") == ours.count("🙂")
