"""Lengths of logged answers: as the log gives them, or counted, each text once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.column_values import MOST_TOKENS
from contextcliff_dagster.score_files.logs.answers import (
    DEFAULT_TOKENIZER,
    Answer,
    LogOptions,
    longest_text,
    name_of,
)
from contextcliff_dagster.score_files.logs.json_walk import rows

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def digest(text: str) -> str:
    """The document's name: SHA-256 of its bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def answers_first(answers: Iterator[Answer]) -> Iterator[Answer]:
    """The same, an answer at the head: missing ones often lack what shows how length is known."""
    begun = []
    for answer in answers:
        begun.append(answer)
        if answer.failure is None:
            break
    yield from reversed(begun)
    yield from answers


class Lengths:
    """The length of every answer of one log, all by one rule.

    The rule is ``documents`` or ``counted`` where the options ask for it; else the first answer
    decides: ``logged`` where the log gives its length, ``counted`` where it has the text. What the
    rule does not give has no length: different measures are never mixed.
    """

    def __init__(self, options: LogOptions) -> None:
        self.rule = "documents" if options.documents else "counted" if options.tokenizer else ""
        self.name = options.tokenizer or DEFAULT_TOKENIZER
        self._open = options.open_tokenizer
        self._tokenizer: Tokenizer | None = None
        self._counts: dict[str, int] = {}

    def of(self, answer: Answer, document: str | None) -> float | None:
        """The length; ``document`` is the digest of ``answer.text``."""
        if not self.rule and (answer.length or answer.text):
            self.rule = "logged" if answer.length else "counted"
        if self.rule == "logged":
            length = answer.length
        elif self.rule == "counted" and answer.text is not None and document is not None:
            length = self.count(answer.text, document)
        else:
            return None
        return length if length and 0 < length <= MOST_TOKENS else None

    def count(self, text: str, document: str) -> int:
        """Tokens of ``text``.

        Raises:
            StudyError: the tokenizer cannot be had.
            ScoreFileError: the options say nothing of how to open one.
        """
        if (known := self._counts.get(document)) is not None:
            return known
        if self._tokenizer is None:
            if self._open is None:
                raise ScoreFileError(
                    "The log gives no lengths, so they must be counted: set open_tokenizer to "
                    "contextcliff_dagster.sampling.tokenizers.tokenizers.open_tokenizer."
                )
            self._tokenizer = self._open(self.name)
        if not text.isascii():  # half a surrogate pair is no text to any tokenizer
            text = text.encode("utf-8", "replace").decode()
        count = self._counts[document] = self._tokenizer.count(text)
        return count

    def of_documents(self, path: Path, wanted: set[str]) -> dict[str, tuple[str, int]]:
        """(digest, tokens) of the documents in ``path`` whose names are ``wanted``.

        Raises:
            ScoreFileError: the file cannot be read, or none of them is in it.
        """
        counted: dict[str, tuple[str, int]] = {}
        try:
            for row in rows(path):
                name = name_of(row.get("_id")) or name_of(row.get("id"))
                text = longest_text(row)
                if name in wanted and name is not None and text is not None:
                    document = digest(text)
                    counted[name] = document, self.count(text, document)
        except OSError as error:
            raise ScoreFileError(f"{path} cannot be read: {error.strerror or error}.") from error
        if not counted:
            raise ScoreFileError(
                f"{path} has none of the log's documents: it needs one object a document, with "
                "'_id' (or 'id') as in the log and 'context'."
            )
        return counted
