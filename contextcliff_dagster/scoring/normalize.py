"""Answer normalisation of SQuAD, so that "The  Red House." and "red house" are one answer.

Source: the official evaluation script of Rajpurkar, Zhang, Lopyrev and Liang, "SQuAD: 100,000+
Questions for Machine Comprehension of Text" (EMNLP 2016): lower case, punctuation removed, the
articles a, an, the removed, white space collapsed, in this order.

Additions, none of which changes the result on ASCII text:

- punctuation is Unicode's as well as the ASCII set, so that a curly quote or a dash (which models
like) is not a mistake;
- an accented letter is one answer however it is encoded (Unicode NFC), full-width letters and
  digits are the usual ones, and invisible characters (zero-width, direction marks, soft hyphens)
  do not count;
- in scripts that write no spaces between words, each character is a token, and the text between
  them is split at white space, as in the evaluation of MLQA (Lewis et al. 2020, "mixed
  segmentation", which does this for Chinese) and of MKQA (Longpre et al. 2021: Chinese, Japanese,
  Thai, Khmer). A combining vowel or tone mark belongs to its character. Spaces between such
  characters do not count, and a text in such a script keeps "a", which is not an article there.

LongBench segments Chinese into words with jieba before it compares; one-character tokens need no
dictionary; docs/method.md states the difference.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ARTICLE_WORDS = frozenset(("a", "an", "the"))
_ASCII_PUNCTUATION = frozenset(string.punctuation)
_LATIN_1 = bytes(range(256))
_LONG = 200
_ASCII_DELETIONS = str.maketrans("", "", string.punctuation)

_HAN_AND_KANA = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_SOUTH_EAST_ASIAN = (
    *(range(0x0E00, 0x1000), range(0x1000, 0x10A0), range(0x1780, 0x1800), range(0x1950, 0x19E0)),
    *(range(0x1A20, 0x1AB0), range(0x1B00, 0x1B80), range(0xA980, 0xA9E0), range(0xAA60, 0xAAE0)),
)
"""Thai, Lao, Tibetan; Myanmar; Khmer; Tai Le, New Tai Lue; Tai Tham; Balinese; Javanese; further
letters of Myanmar and Tai Viet."""


def _of_category(initial: str) -> str:
    codes = (code for block in _SOUTH_EAST_ASIAN for code in block)
    return "".join(c for c in map(chr, codes) if unicodedata.category(c).startswith(initial))


class _Patterns(NamedTuple):
    character: re.Pattern[str]
    """A letter of a script without spaces, with its combining marks."""
    token: re.Pattern[str]
    run: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Return the patterns, compiled on first use: most texts are ASCII."""
    letters = _HAN_AND_KANA + _of_category("L")
    character = f"[{letters}][{_of_category('M')}\u0300-\u036f\u3099\u309a]*"
    every = (character, rf"{character}|[^\s{letters}]+", f"(?:{character})+")
    return _Patterns(*map(re.compile, every))


_INVISIBLE = (
    *(0x00AD, 0x061C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F)),
    *(*range(0x2060, 0x2070), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE01F0)),
)
_FOLDED = {
    **{chr(code): "" for code in _INVISIBLE},
    **{
        chr(code): chr(int(form[1], 16))
        for code in (0x3000, *range(0xFF00, 0xFFF0))
        if code != 0xFF0C  # a comma that stands between two numbers, never within one
        and len(form := unicodedata.decomposition(chr(code)).split()) == 2
    },
}


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")


def _characters(text: str) -> set[str]:
    """Return `set(text)`, ten times as fast if a long text is entirely Latin-1."""
    if len(text) < _LONG:
        return set(text)
    try:
        absent = _LATIN_1.translate(None, text.encode("latin-1"))
    except UnicodeEncodeError:
        return set(text)
    return set(_LATIN_1.translate(None, absent).decode("latin-1"))


def remove_punctuation(text: str) -> str:
    """Return `text` without punctuation; the characters around it are joined, as in SQuAD."""
    if text.isascii():
        return text.translate(_ASCII_DELETIONS)
    return substitute(text, dict.fromkeys(filter(_is_punctuation, _characters(text)), ""))


def fold_forms(text: str) -> str:
    """Return `text` in NFC, with ordinary-width characters and without invisible ones."""
    return text if text.isascii() else unicodedata.normalize("NFC", substitute(text, _FOLDED))


def substitute(text: str, by: Mapping[str, str]) -> str:
    """Return `text` with each character of `by` replaced, like `str.translate`.

    No replacement may be a key of `by`. Ten times as fast on a long text with accents.
    """
    for character in by.keys() & _characters(text):
        text = text.replace(character, by[character])
    return text


def answer_tokens(text: str) -> list[str]:
    """Return the normalised tokens of an answer, in order; see the module for the steps.

    >>> answer_tokens("The  Red-Crate!"), answer_tokens("於 2013年。")
    (['redcrate'], ['於', '2013', '年'])
    """
    return folded_tokens(fold_forms(text).lower())


def folded_tokens(lowered: str) -> list[str]:
    """Return `answer_tokens` for a text already in lower case and through `fold_forms`."""
    return tokens_without_punctuation(folded_without_punctuation(lowered))


def folded_without_punctuation(lowered: str) -> str:
    """Return the text from which `folded_tokens` are cut: without punctuation, in NFC."""
    without = remove_punctuation(lowered)
    # A combining mark may now be next to its letter.
    return without if lowered.isascii() else unicodedata.normalize("NFC", without)


def tokens_without_punctuation(lowered: str) -> list[str]:
    """Return `folded_tokens` for a text already through `folded_without_punctuation`."""
    characters = "".join(_characters(lowered).difference(string.whitespace))
    if not characters.isascii() and _patterns().character.search(characters):
        return _patterns().token.findall(lowered)
    if characters.isalnum():
        return [word for word in lowered.split() if word not in _ARTICLE_WORDS]
    # An article next to a sign that is not punctuation ("a\u20ac") is part of a word.
    return _ARTICLES.sub(" ", lowered).split()


def normalize_answer(text: str) -> str:
    """Return the form in which answers are compared: the tokens joined by spaces.

    >>> normalize_answer("The  Red-Crate!")
    'redcrate'
    """
    return " ".join(answer_tokens(text))


def is_unspaced(character: str) -> bool:
    """Return whether this letter's script writes no spaces between words."""
    return not character.isascii() and _patterns().character.match(character) is not None


def unspaced_runs(text: str) -> list[list[str]]:
    """Return each run of characters of scripts without spaces, as a list."""
    if text.isascii():
        return []
    character, _, run = _patterns()
    return [character.findall(match[0]) for match in run.finditer(fold_forms(text))]


def spaced_text(text: str) -> str:
    """Return `text` with a space in place of every character of a script without spaces."""
    return text if text.isascii() else _patterns().character.sub(" ", fold_forms(text))


def word_count(text: str) -> int:
    """Count the words of `text`; two characters of a script without spaces count as one word.

    >>> word_count("the red house"), word_count("厦门大学")
    (3, 2)
    """
    characters = 0 if text.isascii() else sum(map(len, unspaced_runs(text)))
    if not characters:
        return len(text.split())
    return (characters + 1) // 2 + len(remove_punctuation(spaced_text(text)).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """Return 1.0 if `answer` equals an `accepted` answer after normalisation, else 0.0."""
    return max((_exact(answer, gold) for gold in accepted), default=0.0)


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the highest token F1 (0..1) of `answer` against any `accepted` answer.

    >>> token_f1("the red crate", ["a red crate", "crate 7 of four"])
    1.0
    >>> token_f1("red crate", ["red"]) == 2 / 3
    True
    """
    return max((_f1_of_texts(answer, gold) for gold in accepted), default=0.0)


def bare(text: str) -> str:
    """Return `text` in lower case with white space collapsed; nothing visible is removed."""
    return " ".join(fold_forms(text).lower().split())


def _without_punctuation(text: str) -> str:
    return bare(remove_punctuation(text))


# From the usual form to the one that erases least.
_FORMS: tuple[Callable[[str], str], ...] = (normalize_answer, _without_punctuation, bare)


def _f1_of_texts(answer: str, gold: str) -> float:
    expected = answer_tokens(gold)
    if not expected:
        return _exact(answer, gold)
    tokens = answer_tokens(answer)
    n_shared = sum((Counter(tokens) & Counter(expected)).values())
    if n_shared == 0:
        return 0.0
    precision, recall = n_shared / len(tokens), n_shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def _exact(answer: str, gold: str) -> float:
    for form in _FORMS:
        if expected := form(gold):
            return float(form(answer) == expected)
    return 0.0
