"""A document that is published in pieces, put down in their order, with the place of each kept."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PiecedText", "answer_place"]


class PiecedText:
    """Pieces one after another; `add` tells where in the text, in characters, each begins."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str, before: str = "") -> int:
        """Append ``before`` (only where something stands already) and the piece."""
        if self._length and before:
            self._pieces.append(before)
            self._length += len(before)
        start = self._length
        self._pieces.append(piece)
        self._length += len(piece)
        return start

    @property
    def text(self) -> str:
        return "".join(self._pieces)


def answer_place(text: str, spans: Sequence[tuple[int, int]], answers: Sequence[str]) -> int | None:
    """Where the first accepted answer that stands in a piece of evidence begins.

    ``spans`` are the pieces, ``[start, end)`` in characters. Where no answer stands in any, the
    start of the first piece; None without evidence.
    """
    for start, end in spans:
        for answer in answers:
            if answer and (at := text.find(answer, start, end)) >= 0:
                return at
    return min(spans)[0] if spans else None
