"""Accepted answers of the kinds that benchmarks have, and how a question says what is wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Literal

AnswerType = Literal["text", "number", "yes_no", "multiple_choice", "unanswerable"]

NO_ANSWER = "unanswerable"
_LETTERS = re.compile(r"\(?[A-H]\)?(?:(?:\s*[,;/&]\s*|\s+and\s+|\s*)\(?[A-H]\)?)*")
_NUMBER = re.compile(r"[-+]?\d+(,\d{3})*(\.\d+)?%?")


def answer_type(answers: Sequence[str]) -> AnswerType:
    """What kind the accepted answers are; ``text`` unless all are yes or no, or all numbers."""
    plain = [answer.strip().rstrip(".").lower() for answer in answers]
    if all(answer in ("yes", "no") for answer in plain):
        return "yes_no"
    return "number" if all(_NUMBER.fullmatch(answer) for answer in plain) else "text"


def letters_of(answer: str) -> str:
    """The options that an answer such as ``B``, ``BD``, ``B, D`` or ``B and D`` names, as ``BD``;
    empty where it is something else, such as ``BBC``: options come in order, each once."""
    plain = answer.strip().rstrip(".")
    named = re.findall("[A-H]", plain) if _LETTERS.fullmatch(plain) else []
    return "".join(named) if named == sorted(set(named)) else ""


def choice_question(question: str, options: Sequence[str]) -> str:
    """The question with its options, lettered from A, and the wish for a letter."""
    lettered = "\n".join(
        f"{letter}. {option.strip()}"
        for letter, option in zip(ascii_uppercase, options, strict=False)
    )
    return f"{question.strip()}\n{lettered}\nAnswer with the letter of the right option."


def choice_answers(options: Sequence[str], right: int) -> tuple[str, ...]:
    """What counts as choosing option ``right`` (from 0): its letter, its text, or both."""
    letter, text = ascii_uppercase[right], options[right].strip()
    return (letter, f"{letter}. {text}", text)


def ask_unanswerable(question: str) -> str:
    """The question where some of its kind have no answer: every one says so, and what to reply."""
    return f"{question.strip()}\nIf the text does not say, answer: {NO_ANSWER}"
