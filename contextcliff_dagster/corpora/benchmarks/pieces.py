"""A document that is published in pieces, joined in their order, with the position of each kept."""

from __future__ import annotations

import re
from collections.abc import Sequence


class PiecedText:
    """Pieces one after another; `add` returns where each is: [start, end) in characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str, before: str = "") -> tuple[int, int]:
        """Append ``before`` (unless nothing came before) and the piece."""
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
    """Where the first accepted answer in a piece of evidence begins.

    ``spans`` are the pieces, ``[start, end)`` in characters. Where none holds an answer, the
    start of the first piece; None without evidence.
    """
    for start, end in spans:
        for answer in answers:
            if answer and (match := _standing_alone(answer).search(text, start, end)):
                return match.start()
    return min(spans)[0] if spans else None


def _standing_alone(answer: str) -> re.Pattern[str]:
    # "no" does not occur in "known"; scripts without blanks between words have no such edges.
    before = r"(?<![A-Za-z0-9])" if re.match(r"[A-Za-z0-9]", answer) else ""
    after = r"(?![A-Za-z0-9])" if re.search(r"[A-Za-z0-9]\Z", answer) else ""
    return re.compile(before + re.escape(answer) + after)
