"""One file's text, whole and as it stands, or the reason why it is left out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from pathlib import Path

SKIPPED: dict[str, str] = {
    "outside": "behind links out of the folder",
    "unreadable": "not readable",
    "too_short": "shorter than min_bytes",
    "too_long": "longer than max_bytes",
    "long_lines": "data or generated (a line above 2,000 characters)",
    "empty": "empty",
    "not_text": "not text in the encoding that they declare",
    "not_python": "not Python of this version",
    "too_deep": "nested too deeply",
    "duplicate": "the same as another",
    "no_question": "without a question",
}
"""Why a file is left out, in the words of the report."""

LONGEST_LINE = 2_000
"""Characters; no hand writes a longer line, tables of data and bundled programs have them."""

_BREAK = re.compile(r"\r\n|\r|\n")


class SkippedFileError(Exception):
    """The file is left out; ``reason`` is a key of `SKIPPED`."""

    def __init__(self, reason: str) -> None:
        super().__init__(SKIPPED[reason])
        self.reason = reason


def read_bytes(path: Path, min_bytes: int, max_bytes: int) -> bytes:
    """The file's bytes; of a longer one than ``max_bytes`` no more is read than tells so.

    Raises:
        SkippedFileError: it cannot be read, or its size is outside the limits.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise SkippedFileError("unreadable") from error
    if len(content) > max_bytes:
        raise SkippedFileError("too_long")
    if not content.strip():
        raise SkippedFileError("empty")
    if len(content) < min_bytes:
        raise SkippedFileError("too_short")
    return content


def read_text(content: bytes) -> str:
    """The bytes in the encoding that they declare (PEP 263; UTF-8), line ends as they are.

    A byte order mark is part of the encoding, not of the text.

    Raises:
        SkippedFileError: they are no text, or data rather than source.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
        text.encode()  # unicode_escape, for one, can make half a surrogate pair
    except (SyntaxError, UnicodeError, LookupError, ValueError, AssertionError) as error:
        raise SkippedFileError("not_text") from error
    if not isinstance(text, str) or "\0" in text:
        raise SkippedFileError("not_text")
    if max(map(len, _BREAK.split(text))) > LONGEST_LINE:
        raise SkippedFileError("long_lines")
    return text


def parse(text: str) -> ast.Module:
    """The syntax tree; the text is not compiled, let alone executed.

    Raises:
        SkippedFileError: it is no Python, or nested deeper than the parser goes.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and the like in files that are not ours
            return ast.parse(text)
    except (RecursionError, MemoryError) as error:
        raise SkippedFileError("too_deep") from error
    except (SyntaxError, ValueError) as error:
        raise SkippedFileError("not_python") from error
