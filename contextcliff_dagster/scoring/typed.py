"""Replies judged by what kind of answer is accepted: `answer_types`.

Read is what the reply states as its answer (`stated_answer`). `em` is 1 where that is the accepted
one, whatever words, units' spellings and marks are around it: the number and its unit, the date,
the label, yes or no, the chosen letter, all items of a list; of words, the accepted ones as whole
words in an answer of at most `BOUND` more. Another answer beside it, or "not" before it, is wrong.
`f1` is `em`, but of free text SQuAD's token F1; `contained` is that of `text`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

from contextcliff_dagster.scoring.answer_types import NO, YES, answer_items, answer_type
from contextcliff_dagster.scoring.containment import Haystack, comparable, contained
from contextcliff_dagster.scoring.denied import before, offered, refused
from contextcliff_dagster.scoring.normalize import word_count
from contextcliff_dagster.scoring.parse import ParsedAnswer
from contextcliff_dagster.scoring.quantities import Day, Quantity, days, quantities, same_quantity
from contextcliff_dagster.scoring.scorers import Scorer, Scores, score_choice
from contextcliff_dagster.scoring.squad import exact_match, token_f1
from contextcliff_dagster.scoring.stated_answer import content_words, stated_answer

_Found = TypeVar("_Found", Quantity, Day)

BOUND = 25
"""Words that an answer may have besides the accepted ones, to be one that states them."""
_UNDECIDED = re.compile(
    r"\b(?:can(?:no|['\u2019])t|cannot|unable to|could(?: not|n['\u2019]t)) (?:\w+ )?"
    r"(?:determine|find|tell|identify|decide|answer|choose|locate)\b|\bneither is clear"
    r"|\bwithout (?:saying|stating|specifying) which\b|\bnot clear which\b",
    re.IGNORECASE,
)
_LOWER = re.compile(r"^[\s*_\"'(\[]*[a-h](?=[).:\s]|$)|(?<!\w)[a-h](?=\))")
_LETTER = re.compile(
    r"(?<![A-Za-z0-9])(?<![A-Za-z]['\u2019])(?:[B-H]|A(?!\s(?!is\b|are\b|was\b|and\b|und\b|et\b|ist\b|or\b|because\b|since\b|as\b|can\b|versus\b)[a-z]))"
    r"(?!['\u2019]?[A-Za-z0-9])"
)
_LEADING = re.compile(r"[\s*_\"'(\[]*(?:[Oo]ption\s+)?([A-H])(?:[).:*]|\s*$)")
_ANNOUNCED = re.compile(
    r"\b(?:answer|(?:correct|right) (?:option|choice)|i choose|i pick|i select)(?: is|:)?\W{0,4}"
    r"(?:option )?([A-H])\b",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?<!\w)([A-H])\s?[).:]\s*(.+?)(?=[\s;(]+[A-H]\s?[).:]|\n|$)")
_CLAUSE = re.compile(r"[,;:]\s|\s(?:and|but|while|whereas|und|et|y)\s", re.IGNORECASE)
_BUT = re.compile(r"\b(?:but|however|aber|mais|pero)\s(?:it |he |she |they )?$", re.IGNORECASE)
_WORDS = "|".join(map(re.escape, sorted(YES | NO, key=len, reverse=True)))
_YES_NO = re.compile(rf"(?<!\w)({_WORDS})(?=\W*$|[.,:;!?*)\"'\u2014]|\s[-\u2013\u2014(])")
_IT_DOES = re.compile(
    r"\W*(?:it|they|there|he|she|this|that) (?:does|do|is|are|was|were|did|has|have|can|will)"
    r"(?P<not>n['\u2019]t| not)?\b",
    re.IGNORECASE,
)
_PAIR, _NAME_WORDS = 2, 5
_PART = re.compile(r",\s*(?:and\s)?|\s+and\s+|;\s|\bmentions?\b")
_MENTIONS = re.compile(r"\b(?:mentions?|mentioned|several|lists|named)\b", re.IGNORECASE)
_QUOTES = r"[\"'*_(`\u201c\u201e\u00ab]*"
_STATED = re.compile(
    r"(?:['\u2019]s|\b(?:is|are|was|were|equals?|be|amounts? to|totals?|to|of|at|as|namely|agit de"
    r"|ist|sind|beträgt|est|es|son)|[:=\u2248])\s*"
    rf"(?:(?:about|exactly|therefore|thus|the|a|only|actually|now)\s+)*{_QUOTES}$",
    re.IGNORECASE,
)


def typed_scorer(question: str, labels: Sequence[str] = (), *, free: bool = False) -> Scorer:
    """The scorer of one question.

    Args:
        labels: those that the study's answers are from; empty: from no small set.
        free: words are free text, judged by token F1, and no spans.
    """

    def score(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
        inside = contained(parsed.visible, accepted)
        if parsed.text is None or not accepted:
            return Scores(0.0, 0.0, inside)
        kind = "label" if labels else answer_type(accepted)
        if kind is None and free:
            em = exact_match(parsed.text, accepted)
            return Scores(em, token_f1(parsed.text, accepted), max(em, inside))
        stated = parsed.text
        if parsed.value is None:
            undecided = _UNDECIDED.search(parsed.visible)
            stated = "" if undecided else stated_answer(parsed.visible, question)
        if kind == "choice":
            right = _letters_are(replace(parsed, text=stated), question, accepted)
        elif kind == "label":
            right = _only_label(stated, accepted, labels)
        elif kind in ("number", "date"):
            is_it = _number_is if kind == "number" else _day_is
            right = any(is_it(stated, question, gold) for gold in accepted)
        elif kind == "list":  # items stand on lines of their own
            right = any(_holds_all(_plain(parsed.visible), _plain(gold)) for gold in accepted)
        elif kind == "yes_no":
            alone = word_count(stated) <= _NAME_WORDS
            said = _says(stated) if alone else None
            said = _says(parsed.visible) if said is None else said
            right = said == _says(accepted[0])
        else:
            right = any(_holds(_plain(stated), _plain(gold)) for gold in accepted)
        em = float(right)
        return Scores(em, em, max(em, inside))

    return score


def _letters_are(parsed: ParsedAnswer, question: str, accepted: Sequence[str]) -> bool:
    """Whether the one letter that the reply gives is accepted; of several that which it announces.

    Where several letters are right, as `score_choice` has it.
    """
    if all(len(gold.strip()) > 1 for gold in accepted):
        return score_choice(parsed, accepted).em > 0
    text = _LOWER.sub(lambda match: match[0].upper(), parsed.text or "")
    found = list(_LETTER.finditer(text))
    if any(offered(text, *one.span()) for one in found):
        return False
    given = {one[0] for one in found if not refused(text, *one.span())}
    if not found:  # the option's text alone
        options = {letter: words.strip(" .;,") for letter, words in _OPTION.findall(question)}
        given = {letter for letter, words in options.items() if words and _holds(text, words)}
    if leading := _LEADING.match(text):
        given &= {leading[1]}
    elif len(given) > 1 and (announced := _ANNOUNCED.findall(text)):
        given = {announced[-1].upper()}
    return len(given) == 1 and given <= {gold.strip() for gold in accepted}


def _says(text: str) -> bool | None:
    """Yes or no: the last of the words that is an answer of its own; None where there is none."""
    said = _YES_NO.findall(comparable(text))
    if said:
        return said[-1] in YES
    it = _IT_DOES.match(text)
    return it["not"] is None if it else None


def _number_is(stated: str, question: str, gold: str) -> bool:
    accepted = next(quantities(gold), None)
    if accepted is None:
        return False
    asked = [one.values for one in quantities(question)]
    given = _affirmed(stated, quantities(stated))
    given = [one for one in given if one.unit or one.values not in asked] or given
    several = len({one.values for one in given}) > 1
    if several and any(one.unit for one in given) and accepted.unit:
        given = [one for one in given if one.unit == accepted.unit] or given
    if len({one.values for one in given}) > 1:
        given = _of_clause(stated, question, given)
    if len({one.values for one in given}) > 1:  # as in "on page 12 the fee is 300": what "is" says
        given = [one for one in given if _STATED.search(before(stated, one.start))][-1:]
    return bool(given) and same_quantity(given[0], accepted)


def _of_clause(text: str, question: str, found: Sequence[_Found]) -> list[_Found]:
    """Those in the clause that shares most words with the question; all where none shares any."""
    cuts = [0, *(cut.end() for cut in _CLAUSE.finditer(text)), len(text)]
    asked = content_words(question)
    clauses = [
        (
            len(asked & content_words(text[low:high])),
            _BUT.search(before(text, low)) is not None,
            -low,
            inside,
        )
        for low, high in pairwise(cuts)
        if (inside := [one for one in found if low <= one.start < high])
    ]
    shared, _, _, inside = max(clauses, key=itemgetter(0, 1, 2), default=(0, False, 0, []))
    return inside if shared else list(found)


def _affirmed(text: str, found: Iterable[Quantity]) -> list[Quantity]:
    """Without those that are denied; none at all where two are offered."""
    kept = [one for one in found if not refused(text, one.start, one.end)]
    return [] if any(offered(text, one.start, one.end) for one in kept) else kept


def _day_is(stated: str, question: str, gold: str) -> bool:
    accepted = next(days(gold), None)
    given = [one for one in days(stated) if not refused(stated, one.start, one.end)]
    given = _of_clause(stated, question, given)
    same = [bool(accepted and one.days & accepted.days) for one in given]
    return bool(same) and all(same)


def _places(text: str, phrase: str) -> list[re.Match[str]]:
    """Where ``phrase`` is in ``text``, both made comparable, as whole words."""
    return list(re.finditer(rf"(?<!\w){re.escape(comparable(phrase))}(?!\w)", text))


def _only_label(stated: str, accepted: Sequence[str], labels: Sequence[str]) -> bool:
    text = comparable(stated)
    if exact_match(stated, accepted):
        return True
    named: set[str] = set()
    for label in sorted({*labels, *accepted}, key=len, reverse=True):
        for place in _places(text, label):
            if not refused(text, *place.span()):
                named.add(comparable(label))
        text = re.sub(rf"(?<!\w){re.escape(comparable(label))}(?!\w)", "#", text)
    return len(named) == 1 and named <= set(map(comparable, accepted))


def _holds(stated: str, gold: str) -> bool:
    if exact_match(stated, [gold]):
        return True
    if word_count(stated) > word_count(gold) + BOUND or not Haystack(stated).holds(gold):
        return False
    parts = [part.strip(" .*") for part in _PART.split(comparable(stated).rsplit(": ", 1)[-1])]
    several = len(parts) > _PAIR and comparable(gold) in parts
    if several and (all(map(_is_short, parts)) or _MENTIONS.search(stated)):
        return False  # one of several candidates
    text = comparable(stated)
    places = _places(text, gold)
    denied = [refused(text, *one.span()) for one in places]
    return not places or not (all(denied) or any(offered(text, *one.span()) for one in places))


def _holds_all(stated: str, gold: str) -> bool:
    items, text = answer_items(gold), comparable(stated)
    if word_count(stated) > sum(map(word_count, items)) + 2 * BOUND:
        return False
    places = [_places(text, item) for item in items]
    return all(any(not refused(text, *one.span()) for one in there) for there in places)


def _plain(text: str) -> str:
    """Without accents, which models leave out."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part))


def _is_short(part: str) -> bool:
    return word_count(part) <= _NAME_WORDS
