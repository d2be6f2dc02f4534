"""Failure tags: why an answer is wrong, by rules a person can check, the first that fits.

- `empty`: nothing but white space, punctuation, end markers and closed reasoning; or JSON whose
  answer is such.
- `schema_violation`: the recipe asks for a schema; the output is not JSON or does not fit it.
- `refusal`: a refusing phrase (or the serving's content filter), not quoted from the document.
- `incompleteness`: cut by the length limit, ends in mid-sentence or mid-reasoning, or only begins
  an accepted answer.
- `instruction_drift`: answers in another form. It holds an accepted answer inside other words; or
  is over `DRIFT_RATIO` times as long as the longest accepted answer (and over `DRIFT_MIN_WORDS`
  words); or is a sentence (`OFF_TOPIC_MIN_WORDS` words) without one content word of the question.
- `wrong_evidence`: it is in the document: word for word, or each of its numbers and names does.
- `hallucination`: anything else; the document does not say it.

The rules for `schema_violation`, `refusal` and `instruction_drift` are the project's blueprint made
exact: its "nouns from the query" are the question's content words (numbers, and words of three
letters and more that are no function words), and only sentences are asked for them, since a short
right answer need not repeat the question. In scripts without spaces two characters count as a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from contextcliff_dagster.contracts import Example, FailureTag
from contextcliff_dagster.scoring.containment import Haystack
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    spaced_text,
    unspaced_runs,
    word_count,
)
from contextcliff_dagster.scoring.parse import ParsedAnswer, has_content
from contextcliff_dagster.scoring.refusals import has_refusing_phrase, is_only_a_refusal

DRIFT_RATIO = 5.0
"""An answer over this many times the words of the longest accepted answer has drifted ..."""
DRIFT_MIN_WORDS = 15
"""... if it has more words than this as well: a short answer may be wordy."""
OFF_TOPIC_MIN_WORDS = 6
"""Answers of so many words are sentences, and share a content word with the question."""
REFUSAL_WINDOW = 300
"""Characters at both ends of the output in which a refusing phrase counts."""
QUOTE_MIN_WORDS = 4
"""So many consecutive words of the document are a quotation, not a refusal."""

_LENGTH_REASONS = frozenset({"length", "max_tokens", "max_output_tokens"})
_FILTER_REASONS = frozenset({"content_filter", "refusal", "safety"})

_HANGING_SIGNS = ",;:([{<=-\u2013\u2014/&\uff0c\u3001\uff1b\uff1a\uff08\u300a\u300c\u300e\u3010"
_BRACKETS = tuple(
    zip("([\uff08\u300a\u300c\u300e\u3010", ")]\uff09\u300b\u300d\u300f\u3011", strict=True)
)
_HANGING_WORDS = frozenset(
    "a an the and or but nor of to in on at by for from with into than that which who whose is are "
    "was were be been has have had will would as if because while when".split()
)
_FUNCTION_WORDS = _HANGING_WORDS | frozenset(
    "what where why how does did not can could should may might must shall this these those there "
    "here its his her their our your you they them she him it he we i do according document text "
    "passage context following please find report state give tell answer question value only one "
    "any all each some about between during after before over under".split()
)


def tag_failure(
    parsed: ParsedAnswer,
    example: Example,
    *,
    document: Callable[[], Haystack],
    finish_reason: str | None = None,
    asks_schema: bool = False,
    holds_accepted: bool = False,
) -> FailureTag:
    """The tag of a failed answer (see the table above).

    `document` gives the document to look in, and is called only where the tag depends on it.
    `holds_accepted`: containment is 1. Call it only for answers that failed.
    """
    if not has_content(parsed.visible):
        return FailureTag.EMPTY
    if asks_schema and parsed.error is not None:
        return FailureTag.SCHEMA_VIOLATION
    answer = parsed.text if parsed.text is not None else parsed.visible
    if not has_content(answer):
        return FailureTag.EMPTY
    if not holds_accepted and _refuses(answer, finish_reason, document):
        return FailureTag.REFUSAL
    if _stops_short(parsed, answer, example.answers, finish_reason):
        return FailureTag.INCOMPLETENESS
    if holds_accepted or _drifts(answer, example.question, example.answers):
        return FailureTag.INSTRUCTION_DRIFT
    if _stands_in(answer, example.question, document()):
        return FailureTag.WRONG_EVIDENCE
    return FailureTag.HALLUCINATION


def _refuses(answer: str, finish_reason: str | None, document: Callable[[], Haystack]) -> bool:
    if finish_reason in _FILTER_REASONS or is_only_a_refusal(answer):
        return True
    if not has_refusing_phrase(answer, REFUSAL_WINDOW):
        return False
    return word_count(answer) < QUOTE_MIN_WORDS or not document().holds(answer)


def _stops_short(
    parsed: ParsedAnswer, answer: str, accepted: Sequence[str], finish_reason: str | None
) -> bool:
    last = answer.rstrip()[-1]
    if finish_reason in _LENGTH_REASONS or parsed.text is None or last in _HANGING_SIGNS:
        return True
    pairs = _BRACKETS[:2] if answer.isascii() else _BRACKETS
    if any(answer.count(left) > answer.count(right) for left, right in pairs):
        return True
    tokens = answer_tokens(answer)
    words = re.findall(r"[^\W\d_]+", answer.lower())
    if len(words) >= 3 and words[-1] in _HANGING_WORDS and last.isalpha():
        return True
    return any(
        len(tokens) < len(gold) and tokens and gold[: len(tokens)] == tokens
        for gold in map(answer_tokens, accepted)
    )


def _drifts(answer: str, question: str, accepted: Sequence[str]) -> bool:
    words = word_count(answer)
    longest = max(map(word_count, accepted), default=1)
    if words > max(DRIFT_MIN_WORDS, DRIFT_RATIO * longest):
        return True
    asked = _content_words(question)
    if words < OFF_TOPIC_MIN_WORDS or not asked:
        return False
    expected = asked.union(*map(_content_words, accepted))
    return expected.isdisjoint(_content_words(answer))


def _content_words(text: str) -> set[str]:
    """Stems of the words of `text` that carry its topic; in scripts without spaces, where words are
    not known, each two neighbouring characters."""
    words = re.findall(r"[^\W_]+", spaced_text(text).lower())
    pairs = {a + b for run in unspaced_runs(text) for a, b in pairwise(run)}
    return pairs | {
        _stem(w)
        for w in words
        if w not in _FUNCTION_WORDS and (len(w) >= 3 or any(c.isdigit() for c in w))
    }


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _stands_in(answer: str, question: str, document: Haystack) -> bool:
    if document.holds(answer):
        return True
    asked = {word.lower() for word in re.findall(r"[^\W_]+", spaced_text(question))}
    specifics = {s for s in _specifics(answer) if s.lower() not in asked}
    return bool(specifics) and all(map(document.holds, specifics))


def _specifics(answer: str) -> set[str]:
    """The numbers and names of an answer: what it would have to have from the document."""
    words = re.findall(r"[^\W_]+(?:[.,'][^\W_]+)*", spaced_text(answer))
    return {
        w
        for i, w in enumerate(words)
        if any(c.isdigit() for c in w)
        or (i > 0 and w[0].isupper() and w.lower() not in _FUNCTION_WORDS)
    }
