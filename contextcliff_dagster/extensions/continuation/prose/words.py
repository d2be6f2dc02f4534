"""Words and sentences of a text, the same whatever its typography.

Curly or straight, single or double quotation marks, hyphens and dashes of any length and spacing,
ellipses as one character or three, emphasis by underscores or asterisks, ligatures, composed or
decomposed accents, kinds and runs of white space and line ends: all are read alike.

A word is a run of letters with the apostrophes inside it, or a number; parts of a hyphenated
compound are words of their own. Where a script parts no words (Chinese, Japanese), each character
is one. A sentence ends at a full stop, question or exclamation mark that no abbreviation explains,
and at an ellipsis, a question or an exclamation after which no small letter follows; the number of
a footnote belongs to it ("the end.[1]").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.extensions.continuation.prose.language import FUNCTION_WORDS

_QUOTES = "'\"‘’‚‛“”„‟`´′″‹›«»「」『』"
_DASHES = "–—―‒−⸺⸻﹘─"
_HYPHENS = "‐‑⁃"
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"
_CANONICAL = str.maketrans(
    {
        **dict.fromkeys(_QUOTES, "'"),
        **dict.fromkeys(_DASHES, "—"),
        **dict.fromkeys(_HYPHENS, "-"),
        **dict.fromkeys(_INVISIBLE, None),
    }
)
_WRAPPED_COMPOUND = re.compile(r"(?<=\w)-[^\S\n]*\n\s*(?=\w)")
_NUMBER_RANGE = re.compile(r"(?<=\d)—(?=\d)")
_DASH = re.compile(r"\s*(?:—(?:\s*—)*|--+|(?<=\s)-(?=\s)|^-(?=\s)|(?<=\s)-$)\s*")
_QUOTE_RUN = re.compile(r"''+")
_EMPHASIS = re.compile(
    r"(?<![^\W_])[_*]{1,3}(?=[^\W_])|(?<=[^\W_])[_*]{1,3}(?![^\W_])|(?<=[.!?,;'])[_*]{1,3}(?=\s|$)"
)
_ELLIPSIS = re.compile(r"\.(?:\s?\.)+")
_BLANKS = re.compile(r"\s+")

WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Letters of scripts that part no words, as ranges of a regular expression."""
_END = re.compile(r"([.!?]+)[')\]]*(?:\[\d{1,3}\][')\]]*)*(?=\s|$)|([。！？।۔؟]+)'?")
_AHEAD = re.compile(r"[^\W_]")
_LETTERS = re.compile(r"[^\W\d_]+")
_INITIALISM = re.compile(r"(?:[A-Z]\.)+[A-Z]")
_BEFORE = re.compile(r"[^\s'(\[]+$")

_TITLES = frozenset(
    "mr mrs ms messrs mme mlle dr prof rev hon st sr jr capt col gen lt sgt maj adm gov sen rep "
    "mt ft esq vs viz cf dept approx".split()
)
"""Abbreviations after which a capital or a figure goes on with the sentence."""
_OTHERS = frozenset("etc al e.g i.e eg ie ca op a.m p.m inc ltd co bros".split())
"""Abbreviations that may be a sentence's last word: a capital after them begins another. After the
capitals of an initialism ("U.S.") one does only as a function word: "the U.S. Army"."""
_OPENING = FUNCTION_WORDS["English"]
_BEFORE_FIGURES = frozenset("no nos vol vols p pp ch chap fig figs art sec".split())


@dataclass(frozen=True, slots=True)
class Prose:
    """A text in its canonical form, read as words and sentences.

    Attributes:
        text: canonical: NFKC, one kind of quotation mark, dash and blank.
        words: in small letters, in order.
        starts: of each word in ``text``, in characters.
        sentence_ends: words before the end of each sentence, increasing; the last sentence is left
            out where no mark ends it.
        marks_end: where the mark of each of these sentences ends, in characters.
    """

    text: str
    words: tuple[str, ...]
    starts: NDArray[np.int64]
    sentence_ends: NDArray[np.int64]
    marks_end: NDArray[np.int64]

    @property
    def sentence_lengths(self) -> NDArray[np.int64]:
        """Words of each sentence that a mark ends."""
        return np.diff(self.sentence_ends, prepend=0)

    def sentences(self) -> list[str]:
        """The sentences that a mark ends, in the canonical text."""
        bounds = [0, *map(int, self.marks_end)]
        return [self.text[a:b].strip() for a, b in pairwise(bounds)]

    def first(self, words: int) -> Prose:
        """The first so many words, and the sentences that end within them."""
        if words >= len(self.words):
            return self
        return Prose(
            self.text[: int(self.starts[words])].rstrip(),
            self.words[:words],
            self.starts[:words],
            self.sentence_ends[self.sentence_ends <= words],
            self.marks_end[self.sentence_ends <= words],
        )


@lru_cache(maxsize=16)  # metrics, collapse and overlap read the same text
def read_prose(text: str) -> Prose:
    """Words and sentences of ``text``; the arrays are not to be changed."""
    canonical = canonical_text(text)
    words, starts = [], []
    for match in _word_pattern(canonical).finditer(canonical):
        words.append(match.group().lower())
        starts.append(match.start())
    at = np.array(starts, np.int64)
    ends = np.fromiter(_sentence_ends(canonical), np.int64)
    # A mark after which no word came since the last one ends nothing.
    counted, first = np.unique(np.searchsorted(at, ends), return_index=True)
    ended = counted > 0
    return Prose(canonical, tuple(words), at, counted[ended].astype(np.int64), ends[first][ended])


def canonical_text(text: str) -> str:
    """``text`` in one typography: NFKC, ``'`` for quotation marks, ``—`` for dashes, one blank."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_CANONICAL))
    text = _WRAPPED_COMPOUND.sub("-", text.translate(_CANONICAL))
    text = _EMPHASIS.sub("", text)
    text = _NUMBER_RANGE.sub("-", _BLANKS.sub(" ", text).strip())
    text = _QUOTE_RUN.sub("'", _ELLIPSIS.sub("...", text))
    return _BLANKS.sub(" ", _DASH.sub(" — ", text)).strip()


def _word_pattern(text: str) -> re.Pattern[str]:
    # Vowel signs of Indic scripts are marks, and no part of `\w`.
    marks = "" if text.isascii() else "".join(sorted(c for c in set(text) if _is_mark(c)))
    return _compiled_word(marks)


@lru_cache(maxsize=64)
def _compiled_word(marks: str) -> re.Pattern[str]:
    letter = rf"(?:[^\W\d_{WIDE}]{f'|[{marks}]' if marks else ''})"
    return re.compile(rf"[{WIDE}]|{letter}+(?:'{letter}+)*|\d+(?:[.,:]\d+)*")


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


_STRAIGHT = str.maketrans(dict.fromkeys(_QUOTES, "'"))


def sentence_ends(text: str) -> tuple[int, ...]:
    """Return the characters before the end of each sentence of ``text`` as it is."""
    return tuple(_sentence_ends(text.translate(_STRAIGHT)))


def _sentence_ends(text: str) -> Iterator[int]:
    for mark in _END.finditer(text):
        ahead = _AHEAD.search(text, mark.end(), mark.end() + 12)
        if ahead is None or _ends_sentence(text, mark, ahead.start()):
            yield mark.end()


def _ends_sentence(text: str, mark: re.Match[str], ahead: int) -> bool:
    """``ahead``: where the next word begins."""
    dots, following = mark[1] or mark[2], text[ahead]
    if dots != ".":
        return not following.islower()
    before = _BEFORE.search(text, max(mark.start() - 16, 0), mark.start())
    word = before.group() if before else ""
    if len(word) == 1 and word.isupper() and word != "I":
        return False
    if _INITIALISM.fullmatch(word):
        opening = _LETTERS.match(text, ahead) if following.isupper() else None
        return opening is not None and opening[0].lower() in _OPENING
    word = word.lower()
    if word in _TITLES or (word in _BEFORE_FIGURES and following.isdigit()):
        return False
    return word not in _OTHERS or following.isupper()
