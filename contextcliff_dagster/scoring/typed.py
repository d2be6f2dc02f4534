"""Answer types: the kind of answer a task accepts, and scoring of replies by that type.

The type decides which answer is asked for, and how replies are scored. A study has one type, by at
least `MOST` of its questions' accepted answers; else its answers are spans if at least `VERBATIM`
of them occur in the document word for word and half of them have at most `SPAN_WORDS` words; else
they are free text.

The answer that the reply states (`stated_answer`) is scored. `em` is 1 if it is the accepted one,
whatever words, units' spellings and marks are around it: the number and its unit, the date, the
label, yes or no, the chosen letter, all items of a list (more do no harm); of words, the accepted
ones as whole words in an answer of at most `BOUND` more. An answer with another value next to it,
or "not" before it, is wrong. `f1` equals `em`, or SQuAD's token F1 for free text; `contained` is
the same as in `text`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Final, Literal, NamedTuple

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.containment import Haystack, comparable, contained, not_in_text
from contextcliff_dagster.scoring.normalize import exact_match, normalize_answer, word_count
from contextcliff_dagster.scoring.parse import ParsedAnswer
from contextcliff_dagster.scoring.quantities import (
    Quantity,
    days,
    quantities,
    same_day,
    same_quantity,
)
from contextcliff_dagster.scoring.scorers import Scorer, Scores, score_choice, score_text
from contextcliff_dagster.scoring.stated_answer import (
    OPTIONS,
    Place,
    before,
    elsewhere,
    names_a_place,
    of_clause,
    offered,
    readable,
    refused,
    stated_answer,
    stated_items,
    unstated,
)

AnswerType = Literal["choice", "yes_no", "number", "date", "list", "label", "span", "free"]

MOST, VERBATIM, SPAN_WORDS = 0.95, 0.80, 5
MOST_LABELS, LEAST_TIMES = 12, 4
"""Answers are labels if at most this many are distinct, each accepted this often on average."""
_LOOKED_UP = 60
"""Number of questions whose documents are read to determine whether answers are spans."""

YES: Final = frozenset(
    "yes yeah yep true correct ja wahr richtig oui vrai sí si verdadero sì vero sim verdadeiro да"
    " верно はい 是 是的 对 對 正确 正確 예 네".split()
)
NO: Final = frozenset(
    "no nope false incorrect nein falsch non faux falso não nee нет неверно いいえ 否 不 不是 没有"
    " 沒有 不对 不對 不正确 不正確 错误 錯誤 아니요 아니오".split()
)
_LETTERS = re.compile(r"[A-H](?:(?:\s*[,;/&]\s*|\s+)[A-H])+|(?=[A-H]{2})A?B?C?D?E?F?G?H?")
_OPTION = re.compile(
    r"\(?(?:option )?(?P<letter>[A-H])(?:\)?|[).:]\s+(?P<words>\S.*)|[).:]\s*)", re.IGNORECASE
)
_UNIT_WORDS = 2

INSTRUCTIONS: Final[dict[AnswerType, str]] = {
    "choice": "Answer with the letter of the right option only.",
    "yes_no": "Answer with yes or no only.",
    "number": "Answer with the number, and its unit if it has one, only.",
    "date": "Answer with the date only.",
    "list": "Answer with the items only, separated by semicolons.",
    "label": "Answer with one of these only: {labels}.",
    "span": "Answer with a few words from the text only.",
    "free": "Answer briefly.",
}
"""The instruction that follows the question in a new study's prompt."""

NAMED_AND_SCORED: Final[dict[AnswerType, tuple[str, str]]] = {
    "choice": ("letters of options", "by the letter"),
    "yes_no": ("yes or no", "by yes or no"),
    "number": ("numbers", "by value and unit"),
    "date": ("dates", "by the day"),
    "list": ("lists", "by all their items"),
    "label": ("labels", "by the label"),
    "span": ("a few words each", "by these words"),
    "free": ("free text", "by the share of its words (token F1)"),
}
"""A description of each type, and the rule by which a reply is right."""


class StudyType(NamedTuple):
    """The type of a study's answers, the labels (for type ``label``), and the evidence for it."""

    kind: AnswerType
    labels: list[str]
    why: str


def answer_type(answers: Sequence[str]) -> AnswerType | None:
    """Return the type that the accepted answers show by themselves; None for plain words.

    >>> [answer_type([one]) for one in ("B", "no", "EUR 1,250", "3 March 2024", "Berlin")]
    ['choice', 'yes_no', 'number', 'date', None]
    """
    kinds = {_type_of(answer.strip()) for answer in answers}
    return kinds.pop() if len(kinds) == 1 else None


def _type_of(answer: str) -> AnswerType | None:
    word = answer.strip(" .!").lower()
    if _LETTERS.fullmatch(answer) or option(answer):
        return "choice"
    if word in YES | NO:
        return "yes_no"
    dates = list(days(answer))
    if len(dates) == 1 and word_count(answer[: dates[0].start] + answer[dates[0].end :]) == 0:
        return "date"
    if _is_number(answer):
        return "number"
    items = answer_items(answer)
    return "list" if len(items) > 1 else None


def option(answer: str) -> tuple[str, str] | None:
    """Return the letter and words (may be empty) of an accepted answer that is an option, or None.

    >>> option("B) Paris"), option("(b)"), option("Berlin")
    (('B', 'Paris'), ('B', ''), None)
    """
    match = _OPTION.fullmatch(answer.strip())
    return (match["letter"].upper(), match["words"] or "") if match else None


def _is_number(answer: str) -> bool:
    numbers = list(quantities(answer))
    if len(numbers) != 1:
        return False
    words = f"{answer[: numbers[0].start]} {answer[numbers[0].end :]}".strip(" .")
    prefix = answer[: numbers[0].start].strip(" ($\u20ac\u00a3")
    return not prefix and word_count(words) <= _UNIT_WORDS and not any(map(str.isdigit, words))


def answer_items(answer: str) -> list[str]:
    """Split an accepted answer that is a list, at semicolons or at two or more commas."""
    parts = [part.strip() for part in answer.split(";")]
    if len(parts) == 1 and answer.count(",") > 1:
        parts = [re.sub(r"^and\s+", "", part.strip()) for part in answer.split(",")]
    return [part for part in parts if part]


def labels_of(examples: Sequence[Example]) -> list[str]:
    """Return the labels that the examples' answers belong to; empty if they are not a small set."""
    accepted = [answer for example in examples for answer in example.answers]
    forms = {normalize_answer(answer): answer for answer in reversed(accepted)}
    times = Counter(normalize_answer(answer) for answer in accepted)
    few = 1 < len(forms) <= MOST_LABELS and len(accepted) >= LEAST_TIMES * len(forms)
    return [forms[name] for name, _ in times.most_common()] if few and "" not in forms else []


def study_type(examples: Sequence[Example], document_text: Callable[[str], str]) -> StudyType:
    """Return the type of a study's answers.

    Args:
        document_text: text of a document id; called for a sample of the questions at most.
    """
    types = Counter(
        "choice"
        if example.metadata.get("answer_type") == "multiple_choice"
        else answer_type(example.answers)
        for example in examples
    )
    for kind, count in types.most_common(1):
        if kind is not None and count >= MOST * len(examples):
            return StudyType(kind, [], f"{count:,} of {len(examples):,}")
    if labels := labels_of(examples):
        return StudyType("label", labels, f"{len(labels)} in {len(examples):,}")
    some = examples[:: max(len(examples) // _LOOKED_UP, 1)][:_LOOKED_UP]
    missing, n_checked = not_in_text(some, document_text)
    words = [word_count(example.answers[0]) for example in some if example.answers]
    evidence = f"{n_checked - len(missing)} of {n_checked} stand in the documents word for word"
    if n_checked and len(missing) <= (1.0 - VERBATIM) * n_checked and median(words) <= SPAN_WORDS:
        return StudyType("span", [], evidence)
    return StudyType("free", [], evidence)


def guessing(kind: AnswerType, labels: Sequence[str], examples: Sequence[Example]) -> float:
    """Return the expected score of guessing at random; 0 unless there are few possible answers.

    The number of options of a choice is the number of distinct accepted letters.
    """
    if kind == "yes_no":
        return 0.5
    if kind == "choice":
        choices = (option(answer) for example in examples for answer in example.answers)
        labels = sorted({letter for letter, _ in filter(None, choices)})
    return round(1.0 / len(labels), 3) if len(labels) > 1 else 0.0


def instruction_of(kind: AnswerType, labels: Sequence[str]) -> str:
    """Return the line of the prompt that asks for answers of type ``kind``."""
    return INSTRUCTIONS[kind].format(labels=", ".join(labels))


BOUND = 25
"""Maximum number of additional words in an answer that still counts as stating the accepted one."""
_UNDECIDED = re.compile(
    r"(?:^|[.!?]\s|\b(?:i|we|it|one|so|therefore)\b,?\s)(?:am |was )?"
    r"(?:can(?:no|['\u2019])t|cannot|unable to|could(?: not|n['\u2019]t)) (?:\w+ )?"
    r"(?:determine|find|tell|identify|decide|answer|choose|locate)\b(?![^.!?]*\bbut\b)"
    r"|\bneither is clear|\bwithout (?:saying|stating|specifying) which\b|\bnot clear which\b",
    re.IGNORECASE,
)
_LOWER = re.compile(
    r"^[\s*_\"'(\[]*[a-h](?=[).:\s]|$)|(?<!\w)[a-h](?=\))|(?<=\banswer is )[b-h](?=\W*$)"
)
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
_INITIAL = re.compile(r"[A-H]\.\s+\S")
_ASIDE = re.compile(r"\([^)]*\Z")
_OPTIONS_ASKED = re.compile(r"(?<!\w)([A-H])\s?[).:]\s*(.+?)(?=[\s;(]+[A-H]\s?[).:]|\n|$)")
_WORDS = "|".join(map(re.escape, sorted(YES | NO, key=len, reverse=True)))
_YES_NO = re.compile(
    rf"(?:(?P<not>\b(?:not|nicht) |(?<=\w)n['\u2019]t )|(?<!\w))(?P<word>{_WORDS})"
    r"(?=\W*$|[.,:;!?*)<\"'\u2014、。，]|\s[-\u2013\u2014(])"
)
_IS_TRUE = re.compile(r"\b(?:is|was)(?P<not> not|n't)? (?P<word>true|false|correct|incorrect)\b")
_IT_DOES = re.compile(
    r"\W*(?:it|they|there|he|she|this|that) (?:does|do|is|are|was|were|did|has|have|can|will)"
    r"(?P<not>n['\u2019]t| not| prohibited| forbidden| banned)?+\b"
    r"(?!\s(?:un\w+|only|stated|mentioned|specified|clear|given|known|said)\b)",
    re.IGNORECASE,
)
_YES_AND_NO = re.compile(
    r"(?<!\w)(?:yes|ja|oui|sí) ?(?:and|or|und|oder|et|ou|y|o|/) ?(?:no|nein|non)(?!\w)"
)
_PAIR, _NAME_WORDS = 2, 5
_TWO_NAMES = re.compile(r"\W*[^\W\d_a-z][\w ]* (?:and|und|et|y) [^\W\d_a-z][\w ]*\W*")
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
    """Return the scorer for one question.

    Args:
        labels: the small set that the study's answers belong to; empty: none.
        free: words are free text, scored by token F1, rather than spans.
    """

    def score(parsed: ParsedAnswer, accepted: Sequence[str]) -> Scores:
        containment = contained(parsed.visible, accepted)
        if parsed.text is None or not accepted:
            return Scores(0.0, 0.0, containment)
        if comparable(parsed.text).rstrip(" .") in map(comparable, accepted):
            return Scores(1.0, 1.0, 1.0)
        kind = "label" if labels else answer_type(accepted)
        if kind == "choice" and not OPTIONS.search(question) and any(map(_INITIAL.match, accepted)):
            kind = None
        if kind is None and free:
            return score_text(parsed, accepted)
        stated, visible = parsed.text, parsed.visible
        if parsed.value is None:
            visible = readable(visible, question)
            stated = "" if _UNDECIDED.search(visible) else stated_answer(visible, question)
            stated = "" if kind != "yes_no" and unstated(stated, visible) else stated
        if kind == "choice":
            is_right = _letters_are(replace(parsed, text=stated), question, accepted)
        elif kind == "label":
            is_right = _only_label(stated, accepted, labels)
        elif kind in ("number", "date"):
            is_it = _number_is if kind == "number" else _day_is
            is_right = any(is_it(stated, question, gold) for gold in accepted)
        elif kind == "list":  # items stand on lines of their own
            items = stated if parsed.value is not None else stated_items(visible, question)
            is_right = any(_holds_all(_plain(items), _plain(gold)) for gold in accepted)
        elif kind == "yes_no":
            alone = word_count(stated) <= _NAME_WORDS
            answer = _says(stated) if alone else None
            answer = _says(visible) if answer is None else answer
            is_right = answer == _says(accepted[0])
        else:
            is_right = any(_holds(_plain(stated), _plain(gold), question) for gold in accepted)
        em = float(is_right)
        return Scores(em, em, max(em, containment))

    return score


def _letters_are(parsed: ParsedAnswer, question: str, accepted: Sequence[str]) -> bool:
    """Return whether the reply's only letter, or the letter it announces, is accepted.

    Questions with several right letters are scored by `score_choice`.
    """
    gold_words = dict(pair for gold in accepted if (pair := option(gold)))
    if not gold_words:
        return score_choice(parsed, accepted).em > 0
    text = _LOWER.sub(lambda match: match[0].upper(), parsed.text or "")
    mentions = list(_LETTER.finditer(text))
    if any(offered(text, *mention.span()) for mention in mentions):
        return False
    letters = {mention[0] for mention in mentions if not refused(text, *mention.span())}
    if not mentions:  # the option's text alone
        options = {
            letter: words.strip(" .;,") for letter, words in _OPTIONS_ASKED.findall(question)
        }
        letters = {letter for letter, words in options.items() if words and _holds(text, words)}
    if leading := _LEADING.match(text):
        letters &= {leading[1]}
    elif len(letters) > 1 and (announced := _ANNOUNCED.findall(text)):
        letters = {announced[-1].upper()}
    if not letters and not mentions:
        return any(words and _holds(text, words) for words in gold_words.values())
    return len(letters) == 1 and letters <= gold_words.keys()


def _says(text: str) -> bool | None:
    """Return the last yes (True) or no (False) that stands alone as an answer, or None."""
    lowered = comparable(text)
    if _YES_AND_NO.search(lowered):
        return None
    matches = [*_YES_NO.finditer(lowered)] or [*_IS_TRUE.finditer(lowered)]
    words = [(match["word"] in YES) is (match["not"] is None) for match in matches]
    if words:
        return None if word_count(text) == len(set(words)) == _PAIR else words[-1]
    it = _IT_DOES.match(text)
    return it["not"] is None if it else None


def _number_is(stated: str, question: str, gold: str) -> bool:
    accepted = next(quantities(gold), None)
    if accepted is None:
        return False
    names = re.findall(r"\b[A-Z][a-z]+", gold[accepted.end :])  # "3 March", "12 Main Street"
    if not all(name.lower() in stated.lower() for name in names):
        return False
    topic = [number.values for number in quantities(question)]
    numbers = [*quantities(stated)] or [*quantities(stated.replace("#", ""))]
    found = [number for number in numbers if not names_a_place(stated, number, question)]
    found = _affirmed_numbers(stated, found)
    found = [number for number in found if number.unit or number.values not in topic] or found
    dated = list(days(stated))
    found = [
        number for number in found if not any(day.start <= number.start < day.end for day in dated)
    ] or found
    is_ambiguous = len({number.values for number in found}) > 1
    if is_ambiguous and any(number.unit for number in found) and accepted.unit:
        found = [number for number in found if number.unit == accepted.unit] or found
    years = {year for day in dated for year, *_ in day.days}
    if re.fullmatch(r"[12]\d{3}", gold.strip()) and len(years) == 1:
        return years == {int(gold)}
    if len({number.values for number in found}) > 1:
        found = of_clause(stated, question, found)
    if len({number.values for number in found}) > 1:  # "on page 12 the fee is 300"
        found = [number for number in found if _STATED.search(before(stated, number.start))][-1:]
    is_sum = accepted.unit is None and re.match(r"\s*[a-z]{3}", gold[accepted.end :])
    return bool(
        found and same_quantity(found[0], accepted) and not (is_sum and found[0].unit is not None)
    )


def _affirmed_numbers(text: str, found: Iterable[Quantity]) -> list[Quantity]:
    """Return the numbers that are not denied; empty if several are offered as alternatives."""
    affirmed = [number for number in found if not refused(text, number.start, number.end)]
    if len(affirmed) == _PAIR == len({number.unit for number in affirmed} - {None}):
        return affirmed  # "45 days/1.5 months"
    return [] if any(offered(text, number.start, number.end) for number in affirmed) else affirmed


def _day_is(stated: str, question: str, gold: str) -> bool:
    accepted = next(days(gold), None)
    found = [day for day in days(stated) if not refused(stated, day.start, day.end)]
    found = [day for day in found if not day.of_month] or found
    found = of_clause(stated, question, found)
    found = [day for day in found if not _ASIDE.search(stated, 0, day.start)] or found
    same = [accepted is not None and same_day(day, accepted) for day in found]
    return bool(same) and all(same)


def _places(text: str, phrase: str) -> list[re.Match[str]]:
    """Return where ``phrase`` occurs in ``text`` as whole words, with both made comparable."""
    return list(re.finditer(rf"(?<!\w){re.escape(comparable(phrase))}(?!\w)", text))


def _only_label(stated: str, accepted: Sequence[str], labels: Sequence[str]) -> bool:
    text = comparable(stated)
    if exact_match(stated, accepted):
        return True
    found: set[str] = set()
    for label in sorted({*labels, *accepted}, key=len, reverse=True):
        for place in _places(text, label):
            if not refused(text, *place.span()):
                found.add(comparable(label))
        text = re.sub(rf"(?<!\w){re.escape(comparable(label))}(?!\w)", "#", text)
    return len(found) == 1 and found <= set(map(comparable, accepted))


def _holds(stated: str, gold: str, question: str = "") -> bool:
    if exact_match(stated, [gold]):
        return True
    if word_count(stated) > word_count(gold) + BOUND or not Haystack(stated).holds(gold):
        return False
    parts = [part.strip(" .*") for part in _PART.split(comparable(stated).rsplit(": ", 1)[-1])]
    is_ambiguous = comparable(gold) in parts and (
        len(parts) > _PAIR or _TWO_NAMES.fullmatch(stated) is not None
    )
    if is_ambiguous and (
        all(word_count(part) <= _NAME_WORDS for part in parts) or _MENTIONS.search(stated)
    ):
        return False  # one of several candidates
    text = comparable(stated)
    places = _places(text, gold)
    if len(text) == len(stated) and elsewhere(
        stated, question, [Place(place[0], *place.span()) for place in places]
    ):
        return False
    denied = [refused(text, *place.span()) for place in places]
    return not places or not (all(denied) or any(offered(text, *place.span()) for place in places))


def _holds_all(stated: str, gold: str) -> bool:
    items, text = answer_items(gold), comparable(stated)
    if word_count(stated) > sum(map(word_count, items)) + 2 * BOUND:
        return False
    places = [_places(text, item) for item in items]
    return all(any(not refused(text, *place.span()) for place in matches) for matches in places)


def _plain(text: str) -> str:
    """Return ``text`` without accents, because models omit them."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part))
