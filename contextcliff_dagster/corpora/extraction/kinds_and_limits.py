"""What extraction takes and gives: limits, texts, and files without a readable text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path

_RULES = 3
"""Raised whenever a change to this package can change a text."""

KINDS = ("text", "markdown", "code", "html", "pdf", "docx", "epub")
"""What a file can be read as."""

UNKNOWN_GLYPHS = "glyphs of no known character, read as U+FFFD"
"""How the note on a text begins in which glyphs have no character."""


@dataclass(frozen=True)
class Limits:
    """What one file may cost; a file that needs more is `Unusable`, and the next one is read.

    seconds: processor time for reading one file, so that a busy machine changes no result; enforced
        to the second.
    clock_seconds: time by the clock for one file, where a disk does not answer.
    memory_mb: memory that reading one file may take, beyond that of an idle worker.
    file_mb: the largest file that is opened.
    unpacked_mb: what the needed parts of an archive (DOCX, EPUB) may unpack to, together.
    text_mb: the longest text of one file, in MB of UTF-8.
    workers: processes side by side; None is one a core, 4 at most.

    A MB is 1,000,000 bytes. Raises ValueError for a limit that is not above 0.
    """

    seconds: float = 20.0
    clock_seconds: float = 120.0
    memory_mb: float = 1024.0
    file_mb: float = 200.0
    unpacked_mb: float = 200.0
    text_mb: float = 100.0
    workers: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ValueError(f"The limit {field.name} is {value!r}; it must be above 0.")


@dataclass(frozen=True)
class Extracted:
    """The whole text of a file, which may be empty.

    text: valid Unicode without NUL and without lone surrogates; line ends are ``\\n``.
    kind: one of `KINDS`, by the file's content first and by its name only among texts.
    notes: what was done to the text or noticed about the file, in order, each a short clause such
        as ``decoded as cp1252``, ``byte order mark removed`` or ``is named .txt, holds html``.
    """

    path: Path
    text: str
    kind: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unusable:
    """A file of which no text could be had.

    reason: a clause whose subject is the file: ``is encrypted``, ``took longer than 20 s``.
    """

    path: Path
    reason: str


class RefusedError(Exception):
    """Why no text can be had of a file: a clause whose subject is the file, see `Unusable`."""


def extractor_version() -> dict[str, str]:
    """Name -> version of everything that decides a file's text; for fingerprints."""
    libraries = ("pypdfium2", "lxml", "chardetng-py")
    return {"extraction": str(_RULES), **{name: version(name) for name in libraries}}
