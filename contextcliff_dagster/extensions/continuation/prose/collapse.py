"""Detection of collapse: the ways in which a generated text stops being prose.

Each sign has a limit that human prose rarely reaches, so that at most 1 in 1,000 human passages is
called a collapse; docs/continuation-prose.md has the counts. A sign that the author's own passage
also shows counts as style, not collapse.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from contextcliff_dagster.extensions.continuation.prose.metrics import (
    Ids,
    last_seen,
    ngram_ids,
    windowed_diversity,
    word_ids,
)
from contextcliff_dagster.extensions.continuation.prose.words import (
    WIDE,
    Prose,
    function_words,
    language_of,
    languages_of,
    read_prose,
    script_shares,
)

Collapse = Literal[
    "", "empty", "garbage", "loop", "repetition", "language_switch", "salad", "runaway", "chatter",
    "short",
]  # fmt: skip
"""Kinds of collapse, the first that applies: no words; symbols, endless marks or unspaced words;
one phrase repeated endlessly; recurring phrases, changed or not; another language or script; words
without grammar; no sentence ends; talk about the task; ending long before the author's text (see
`scoring`). "" means no collapse."""

_LOOP_PERIOD = 200
_PHRASE = 5
_LANGUAGE_WINDOW = 40
_UNSPACED = re.compile(rf"[^\s{WIDE}]{{41,}}")
_MARKS_OF_PROSE = frozenset("_.,;:!?'()—-、。・،؛؟।")
_CHATTER = re.compile(
    r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b"
    r"|\bi(?:'m| am)? (?:can'?t|cannot|unable to|not able to|won'?t) (?:\w+ )?"
    r"(?:continue|assist|help|provide|generate|write|fulfil|comply|reproduce|create)\w* (?:with )?"
    r"(?:a|the|this|that|your) (?:\w+ )?"
    r"(?:stor|text|passage|request|novel|book|content|continuation|copyright)"
    r"|^(?:sure|certainly|of course|okay|absolutely)[,.! ]+(?:here|i can|i will|i'll|let me)"
    r"|^here(?: is|'s| are) (?:a|an|the|my|your|one) [\w ]*"
    r"(?:continuation|story|passage|text|version|response|rewrite|chapter)"
    r"|\blet me know if you\b|\bwould you like me to\b"
    r"|\bi hope this (?:helps|continuation|meets)\b"
    r"|<\|?(?:im_start|im_end|endoftext|eot_id|assistant|user|system|end|think)\|?>|</?think>"
    r"|(?:^|\s)(?:###\s*(?:instruction|response|input|assistant)|\[/?inst\])"
)
"""Pattern of chatter in the lower-case canonical text."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs of collapse in a text; fractions are 0..1.

    Attributes:
        words: number of words.
        symbols: fraction of characters other than letters, digits, blanks and marks of prose.
        marks: fraction of raw characters other than letters, digits and the first blank in a run,
        such as endless dots or line ends.
        unspaced: fraction of characters in runs of over 40 without a blank, in scripts that
        use blanks.
        looped_words: longest run of words that equal those one period earlier, for at least two
        periods.
        repeated_phrases: fraction of five-word runs (ten if words are single characters) that
        occurred before, in the 200 words where it is highest.
        lowest_diversity: lowest fraction of distinct words in any 50 words.
        highest_diversity: highest fraction of distinct words in any 100 words; 0 if shorter.
        foreign: fraction of 40-word stretches in a language other than the author's.
        foreign_letters: fraction of letters in a script other than the author's.
        longest_without_grammar: longest run of words without a function word of the author's
            language; 0 if the language is unknown.
        longest_sentence: longest run of words without the end of a sentence.
        chatter: 1 if the text talks about the task or has a template's mark, else 0.
    """

    words: float
    symbols: float = 0.0
    marks: float = 0.0
    unspaced: float = 0.0
    looped_words: float = 0.0
    repeated_phrases: float = 0.0
    lowest_diversity: float = 1.0
    highest_diversity: float = 0.0
    foreign: float = 0.0
    foreign_letters: float = 0.0
    longest_without_grammar: float = 0.0
    longest_sentence: float = 0.0
    chatter: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for a collapse: ``sign`` is above ``limit``, or below it if ``lower``.

    Extremes grow with the length of a text, so the limit moves by ``a_word`` for each word from
    200 to 1,000.
    """

    tag: Collapse
    sign: str
    limit: float
    a_word: float = 0.0
    lower: bool = False

    def limit_at(self, words: float) -> float:
        """Return the limit for a text of ``words`` words."""
        return self.limit + self.a_word * (min(max(words, 200.0), 1000.0) - 200.0)

    def is_passed(self, signs: Signs) -> bool:
        """Return whether a text with these signs is beyond the limit."""
        value, limit = float(getattr(signs, self.sign)), self.limit_at(signs.words)
        return value < limit if self.lower else value > limit


RULES = (
    Rule("garbage", "symbols", 0.1),
    Rule("garbage", "marks", 0.35),
    Rule("garbage", "unspaced", 0.3),
    Rule("loop", "looped_words", 8.0),
    Rule("repetition", "repeated_phrases", 0.33),
    Rule("repetition", "lowest_diversity", 0.4, -0.0001, lower=True),
    Rule("language_switch", "foreign_letters", 0.15),
    Rule("language_switch", "foreign", 0.15),
    Rule("salad", "longest_without_grammar", 24.0, 0.1),
    Rule("salad", "highest_diversity", 0.97),
    Rule("runaway", "longest_sentence", 300.0),
    Rule("chatter", "chatter", 0.5),
)
LEAST_WORDS = 5


def collapse_of(text: str, author: str | None = None) -> Collapse:
    """Classify the collapse of ``text``, "" for prose; ``author`` is the author's own text.

    Without ``author`` the beginning of ``text`` determines the language.
    """
    author_prose = read_prose(author) if author is not None else None
    language = language_of(author_prose.words) if author_prose else None
    signs = signs_of(read_prose(text), text, language, author_prose)
    if signs.words < LEAST_WORDS:
        # A text of marks and symbols alone is not empty.
        return "garbage" if len("".join(text.split())) > 10 * max(signs.words, 2) else "empty"
    broken_rules = [rule for rule in RULES if rule.is_passed(signs)]
    if broken_rules and author_prose is not None:
        usual = signs_of(author_prose, author or "", language, author_prose)
        broken_rules = [rule for rule in broken_rules if not rule.is_passed(usual)]
    return broken_rules[0].tag if broken_rules else ""


def signs_of(prose: Prose, text: str, language: str | None, author: Prose | None) -> Signs:
    """Return the signs in a parsed text; ``language`` and ``author`` are what is expected."""
    words = prose.words
    if len(words) < LEAST_WORDS:
        return Signs(float(len(words)))
    ids = word_ids(words)
    expected = language or language_of(words[:100])
    bounds = [0, *map(int, prose.sentence_ends), len(words)]
    return Signs(
        words=float(len(words)),
        symbols=_symbol_share(prose.text),
        marks=_mark_share(text),
        unspaced=sum(map(len, _UNSPACED.findall(prose.text))) / len(prose.text),
        looped_words=float(looped_words(ids)),
        repeated_phrases=_repeated_phrases(ids, _phrase_words(words)),
        lowest_diversity=float(windowed_diversity(ids, min(50, len(words))).min()),
        highest_diversity=float(windowed_diversity(ids, 100).max(initial=0.0)),
        foreign=_foreign_share(words, expected),
        foreign_letters=_foreign_letters(prose, author),
        longest_without_grammar=_longest_without_grammar(words, expected),
        longest_sentence=float(max(b - a for a, b in pairwise(bounds))),
        chatter=float(_CHATTER.search(prose.text.lower()) is not None),
    )


def _mark_share(text: str) -> float:
    blanks = len(re.findall(r"(?<=\s)\s", text))
    marks = sum(n for sign, n in Counter(text).items() if not sign.isspace() and _is_mark(sign))
    return (blanks + marks) / len(text)


def _symbol_share(text: str) -> float:
    return sum(n for character, n in Counter(text).items() if _is_symbol(character)) / len(text)


def _is_symbol(character: str) -> bool:
    return not character.isspace() and character not in _MARKS_OF_PROSE and _is_mark(character)


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    # Vowel signs and accents are parts of letters.
    return not character.isalnum() and not unicodedata.category(character).startswith("M")


def looped_words(ids: Ids) -> int:
    """Return the longest run of words equal to those one period earlier, for >= 2 periods."""
    longest = 0
    for period in range(1, min(_LOOP_PERIOD, len(ids) // 3) + 1):
        same = ids[period:] == ids[:-period]
        if np.count_nonzero(same) <= max(longest, 2 * period - 1):
            continue
        changes = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        run = int((changes[1::2] - changes[::2]).max())
        if run >= 2 * period and run > longest:
            longest = run
    return longest


def _phrase_words(words: Sequence[str]) -> int:
    # If characters are read as words, a real word has about two of them.
    return _PHRASE if sum(map(len, words)) > 1.5 * len(words) else 2 * _PHRASE


def _repeated_phrases(ids: Ids, words: int) -> float:
    phrases = ngram_ids(ids, words)
    if not len(phrases):
        return 0.0
    total = np.concatenate(([0], np.cumsum(last_seen(phrases) >= 0)))
    width = min(200, len(phrases))
    return float((total[width:] - total[:-width]).max()) / width


def _foreign_share(words: Sequence[str], expected: str | None) -> float:
    if expected is None:
        return 0.0
    width = min(_LANGUAGE_WINDOW, len(words))
    languages = languages_of(words, width, _LANGUAGE_WINDOW // 2)
    return sum(language not in (expected, None) for language in languages) / len(languages)


def _foreign_letters(prose: Prose, author: Prose | None) -> float:
    shares = script_shares(prose.text)
    usual = script_shares(author.text) if author else script_shares(prose.text[:400])
    return float(sum(share for script, share in shares.items() if usual.get(script, 0.0) < 0.01))


def _longest_without_grammar(words: Sequence[str], expected: str | None) -> float:
    if expected is None:
        return 0.0
    at = np.flatnonzero(function_words(words, expected))
    return float(np.diff(np.concatenate(([-1], at, [len(words)]))).max() - 1)
