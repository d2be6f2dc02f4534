"""One record of a published file: checked access, accepted answers, documents built from pieces.

Errors name the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal

from contextcliff_dagster.contracts import CorpusError


class Item:
    """An object in a benchmark's file; ``place`` (file and line or row) is for messages."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise CorpusError(
                f"{place} is not an object with fields; check that the file is this benchmark's."
            )
        self.value, self.place = value, place

    def __contains__(self, key: str) -> bool:
        return self.value.get(key) is not None

    def text(self, key: str) -> str:
        """Return the field's text. Raises CorpusError: it is missing, not text, or blank."""
        value = self._field(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{key!r} is not text, or is empty")
        return value

    def label(self, key: str) -> str:
        """Return a short field (text or a whole number) as text; empty if it is missing."""
        value = self.value.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        return str(value)

    def whole(self, key: str) -> int:
        value = self._field(key)
        # Parquet and pandas write whole numbers as 3.0 if some are missing.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{key!r} is not a whole number")
        return value

    def sequence(self, key: str) -> list[Any]:
        value = self._field(key)
        if not isinstance(value, list):
            raise self.error(f"{key!r} is not a list")
        return value

    def texts(self, key: str) -> list[str]:
        """Return the field's texts; the field may hold one or several. Omit blank texts."""
        value = self._field(key)
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.error(f"{key!r} is neither text nor a list of texts")
        return [text for text in value if text.strip()]

    def item(self, key: str) -> Item:
        return Item(self._field(key), f"{self.place}, {key}")

    def items(self, key: str) -> Iterator[Item]:
        for number, value in enumerate(self.sequence(key), start=1):
            yield Item(value, f"{self.place}, {key} {number}")

    def error(self, what: str) -> CorpusError:
        return CorpusError(f"{self.place}: {what}; fix it, or check that it is this benchmark's.")

    def _field(self, key: str) -> Any:
        value = self.value.get(key)
        if value is None:
            raise self.error(f"there is no {key!r}")
        return value


AnswerType = Literal["text", "number", "yes_no", "multiple_choice", "unanswerable"]

NO_ANSWER = "unanswerable"
_LETTERS = re.compile(r"\(?[A-H]\)?(?:(?:\s*[,;/&]\s*|\s+and\s+|\s*)\(?[A-H]\)?)*")
_NUMBER = re.compile(r"[-+]?\d+(,\d{3})*(\.\d+)?%?")


def answer_type(answers: Sequence[str]) -> AnswerType:
    """Return the answers' type: ``text`` unless all are yes or no, or all are numbers."""
    words = [answer.strip().rstrip(".").lower() for answer in answers]
    if all(answer in ("yes", "no") for answer in words):
        return "yes_no"
    return "number" if all(_NUMBER.fullmatch(answer) for answer in words) else "text"


def letters_of(answer: str) -> str:
    """Return the options that an answer such as ``B``, ``BD``, ``B, D`` or ``B and D`` names, as
    ``BD``; empty for anything else, such as ``BBC``: options come in order, each once."""
    text = answer.strip().rstrip(".")
    letters = re.findall("[A-H]", text) if _LETTERS.fullmatch(text) else []
    return "".join(letters) if letters == sorted(set(letters)) else ""


def choice_question(question: str, options: Sequence[str]) -> str:
    """Return the question followed by its options, lettered from A, and a request for a letter."""
    lettered = "\n".join(
        f"{letter}. {option.strip()}"
        for letter, option in zip(ascii_uppercase, options, strict=False)
    )
    return f"{question.strip()}\n{lettered}\nAnswer with the letter of the right option."


def choice_answers(options: Sequence[str], right: int) -> tuple[str, ...]:
    """Return the accepted answers for option ``right`` (from 0): its letter, its text, or both."""
    letter, text = ascii_uppercase[right], options[right].strip()
    return (letter, f"{letter}. {text}", text)


def ask_unanswerable(question: str) -> str:
    """Return the question with the reply to give for "no answer", for sets that need one."""
    return f"{question.strip()}\nIf the text does not say, answer: {NO_ANSWER}"


class PiecedText:
    """A text built piece by piece; `add` returns a piece's [start, end) in characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str, before: str = "") -> tuple[int, int]:
        """Append ``before`` (except in front of the first piece) and the piece."""
        if self._length and before:
            self._pieces.append(before)
            self._length += len(before)
        start = self._length
        self._pieces.append(piece)
        self._length += len(piece)
        return start, self._length

    @property
    def text(self) -> str:
        return "".join(self._pieces)


def answer_place(text: str, spans: Sequence[tuple[int, int]], answers: Sequence[str]) -> int | None:
    """Return where the first accepted answer inside a piece of evidence begins.

    ``spans`` are the pieces, ``[start, end)`` in characters. If no piece contains an answer, return
    the start of the first piece; without evidence, None.
    """
    for start, end in spans:
        for answer in answers:
            if answer and (match := _standing_alone(answer).search(text, start, end)):
                return match.start()
    return min(spans)[0] if spans else None


def _standing_alone(answer: str) -> re.Pattern[str]:
    # Whole words only ("no" is not in "known"), except in scripts without blanks between words.
    before = r"(?<![A-Za-z0-9])" if re.match(r"[A-Za-z0-9]", answer) else ""
    after = r"(?![A-Za-z0-9])" if re.search(r"[A-Za-z0-9]\Z", answer) else ""
    return re.compile(before + re.escape(answer) + after)
