"""Answer normalisation of SQuAD, so that "The  Red House." and "red house" are one answer.

Source: the official evaluation script of Rajpurkar, Zhang, Lopyrev and Liang, "SQuAD: 100,000+
Questions for Machine Comprehension of Text" (EMNLP 2016): lower case, punctuation removed, the
articles a, an, the removed, white space collapsed, in this order.

Two additions, neither of which changes the result on ASCII text:

- Unicode NFC first, so that an accented letter is one answer however it is encoded;
- punctuation is what Unicode calls so as well as the ASCII set, so that a curly quote or a dash
  (which models like) is no mistake.

Tokens are separated by white space: in scripts without it (Chinese, Japanese, Thai) a phrase is one
token, and token F1 is then no finer than exact match.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
_ASCII_DELETIONS = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=4096)
def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")


def remove_punctuation(text: str) -> str:
    """`text` without punctuation; what was on both sides of it joins, as in SQuAD."""
    if text.isascii():
        return text.translate(_ASCII_DELETIONS)
    return "".join(c for c in text if not _is_punctuation(c))


def normalize_answer(text: str) -> str:
    """The form in which two answers are compared; see the module for the steps.

    >>> normalize_answer("The  Red-Crate!")
    'redcrate'
    """
    lowered = unicodedata.normalize("NFC", text).lower()
    return " ".join(_ARTICLES.sub(" ", remove_punctuation(lowered)).split())


def answer_tokens(text: str) -> list[str]:
    """The normalised tokens of an answer, in order."""
    return normalize_answer(text).split()
