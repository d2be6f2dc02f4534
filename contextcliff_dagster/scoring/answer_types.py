"""What kind of answers a task accepts: it decides what is asked for, and how replies are judged.

A study has one type, by at least `MOST` of its questions' accepted answers; else its answers are
spans where `VERBATIM` of them stand in the document word for word and half of them have at most
`SPAN_WORDS` words; else they are free text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.scoring.normalize import normalize_answer, word_count
from contextcliff_dagster.scoring.quantities import days, quantities

AnswerType = Literal["choice", "yes_no", "number", "date", "list", "label", "span", "free"]

MOST, VERBATIM, SPAN_WORDS = 0.95, 0.80, 5
MOST_LABELS, LEAST_TIMES = 12, 4
"""Labels are at most so many different answers, each of them accepted so often on average."""
_LOOKED_UP = 60
"""Questions whose documents are read, to see whether answers are spans."""

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
"""What the prompt of a new study says after the question."""

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
"""How a person would call each type, and what decides whether a reply is right."""


class StudyType(NamedTuple):
    """The type of a study's answers, its labels where it is ``label``, and what shows the type."""

    kind: AnswerType
    labels: list[str]
    why: str


def answer_type(answers: Sequence[str]) -> AnswerType | None:
    """The type that accepted answers have by themselves; None: words, which may be any other.

    >>> [answer_type([one]) for one in ("B", "no", "EUR 1,250", "3 March 2024", "Berlin")]
    ['choice', 'yes_no', 'number', 'date', None]
    """
    found = {_type_of(answer.strip()) for answer in answers}
    return found.pop() if len(found) == 1 else None


def _type_of(answer: str) -> AnswerType | None:
    plain = answer.strip(" .!").lower()
    if _LETTERS.fullmatch(answer) or option(answer):
        return "choice"
    if plain in YES | NO:
        return "yes_no"
    dates = list(days(answer))
    if len(dates) == 1 and word_count(answer[: dates[0].start] + answer[dates[0].end :]) == 0:
        return "date"
    if _is_number(answer):
        return "number"
    items = answer_items(answer)
    return "list" if len(items) > 1 else None


def option(answer: str) -> tuple[str, str] | None:
    """The letter of an accepted answer that is an option, and its words, if it has any.

    >>> option("B) Paris"), option("(b)"), option("Berlin")
    (('B', 'Paris'), ('B', ''), None)
    """
    found = _OPTION.fullmatch(answer.strip())
    return (found["letter"].upper(), found["words"] or "") if found else None


def _is_number(answer: str) -> bool:
    found = list(quantities(answer))
    if len(found) != 1:
        return False
    rest = f"{answer[: found[0].start]} {answer[found[0].end :]}".strip(" .")
    before = answer[: found[0].start].strip(" ($\u20ac\u00a3")
    return not before and word_count(rest) <= _UNIT_WORDS and not any(map(str.isdigit, rest))


def answer_items(answer: str) -> list[str]:
    """The items of an accepted answer that is a list, by semicolons, or by two commas and more."""
    parts = [part.strip() for part in answer.split(";")]
    if len(parts) == 1 and answer.count(",") > 1:
        parts = [re.sub(r"^and\s+", "", part.strip()) for part in answer.split(",")]
    return [part for part in parts if part]


def labels_of(examples: Sequence[Example]) -> list[str]:
    """The labels that the examples' answers are from; empty where they are from no small set."""
    accepted = [answer for example in examples for answer in example.answers]
    spelled = {normalize_answer(answer): answer for answer in reversed(accepted)}
    times = Counter(normalize_answer(answer) for answer in accepted)
    few = 1 < len(spelled) <= MOST_LABELS and len(accepted) >= LEAST_TIMES * len(spelled)
    return [spelled[name] for name, _ in times.most_common()] if few and "" not in spelled else []


def study_type(examples: Sequence[Example], document_text: Callable[[str], str]) -> StudyType:
    """The type of a study's answers.

    Args:
        document_text: of a document id; asked for a sample of the questions at most.
    """
    from contextcliff_dagster.scoring.containment import not_in_text

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
    missing, asked = not_in_text(some, document_text)
    words = [word_count(example.answers[0]) for example in some if example.answers]
    why = f"{asked - len(missing)} of {asked} stand in the documents word for word"
    if asked and len(missing) <= (1.0 - VERBATIM) * asked and median(words) <= SPAN_WORDS:
        return StudyType("span", [], why)
    return StudyType("free", [], why)


def guessing(kind: AnswerType, labels: Sequence[str], examples: Sequence[Example]) -> float:
    """Mean score of who picks one of the possible answers at random; 0 where they are not few.

    The options of a choice are as many as letters are accepted.
    """
    if kind == "yes_no":
        return 0.5
    if kind == "choice":
        found = (option(answer) for example in examples for answer in example.answers)
        labels = sorted({letter for letter, _ in filter(None, found)})
    return round(1.0 / len(labels), 3) if len(labels) > 1 else 0.0


def instruction_of(kind: AnswerType, labels: Sequence[str]) -> str:
    """The line that asks for answers of ``kind``."""
    return INSTRUCTIONS[kind].format(labels=", ".join(labels))
