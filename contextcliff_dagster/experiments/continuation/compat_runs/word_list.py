"""The list of familiar words: always a file of the user."""

from __future__ import annotations

from pathlib import Path

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.continuation.compat.words import familiar_words
from contextcliff_dagster.user_files import read_file


def read_word_list(path: Path) -> frozenset[str]:
    """Return the words of a file with one on each line, in lower case.

    Raises:
        StudyError: it cannot be read, or holds no words.
    """
    try:
        words = familiar_words(read_file(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise StudyError(f"Word list {path} cannot be read: {reason}.") from error
    if not words:
        raise StudyError(f"Word list {path} is empty; give a file with one word on each line.")
    return words
