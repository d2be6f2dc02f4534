"""Python files below a folder: which there are, in an order that a seed decides, and their text."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.corpora.corpus import seeded_place

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

_PRUNED = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})
_LONGEST_LINE = 2_000
"""Characters; no hand writes a longer line, tables of data and bundled programs have them."""
LINE_BREAK = re.compile(r"\r\n|\r|\n")


class SkippedFileError(Exception):
    """The file is left out; ``reason`` is a key of `SKIPPED`."""

    def __init__(self, reason: str) -> None:
        super().__init__(SKIPPED[reason])
        self.reason = reason


class Root(NamedTuple):
    """A folder under the name by which its files are called (``stdlib/json/decoder.py``)."""

    label: str
    folder: Path


class SourceFile(NamedTuple):
    """A file to be read; ``name`` is its root's label and its path below that, with slashes."""

    name: str
    path: Path


def installed_roots(label: str) -> list[Root]:
    """The folders of this interpreter's ``stdlib`` or ``site-packages``; those that exist."""
    import sysconfig

    paths = sysconfig.get_paths()
    names = ("stdlib",) if label == "stdlib" else ("purelib", "platlib")
    folders = dict.fromkeys(Path(paths[name]).resolve() for name in names if name in paths)
    return [Root(label, folder) for folder in folders if folder.is_dir()]


def find_files(roots: list[Root], seed: int, skipped: Counter[str]) -> list[SourceFile]:
    """Every ``.py`` file below the roots, ordered by SHA-256 of the seed and its name.

    Links are followed only where they stay below their root. What is left out is counted in
    ``skipped``: ``outside`` (a link that leads out of the root), ``unreadable`` (a folder that
    cannot be listed, or something that is no plain file).
    """
    files = {file.path: file for root in roots for file in _below(root, skipped)}
    return sorted(
        files.values(), key=lambda file: (seeded_place(seed, "file", file.name), file.name)
    )


def _below(root: Root, skipped: Counter[str]) -> Iterator[SourceFile]:
    home = root.folder.resolve()
    for folder, folders, files in os.walk(home, onerror=lambda _: skipped.update(["unreadable"])):
        here = Path(folder)
        # The installed packages lie inside the standard library's folder where there is no venv.
        folders[:] = sorted(n for n in folders if n not in _PRUNED and not n.startswith("."))
        skipped.update("outside" for name in folders if _leads_out(here / name, home))
        for path in sorted(here / name for name in files if name.endswith(".py")):
            if _leads_out(path, home):
                skipped["outside"] += 1
            elif not path.is_file():  # opening a pipe or a device would block
                skipped["unreadable"] += 1
            else:
                # Names of files are bytes: what is no UTF-8 must not stop a hash or a table.
                below = os.fsencode(path.relative_to(home)).decode(errors="replace")
                yield SourceFile(f"{root.label}/{below.replace(os.sep, '/')}", path)


def _leads_out(path: Path, home: Path) -> bool:
    with suppress(OSError, RuntimeError):  # a link to itself
        return path.is_symlink() and not path.resolve().is_relative_to(home)
    return True


def read_bytes(path: Path, min_bytes: int, max_bytes: int) -> bytes:
    """The file's bytes; of a longer one than ``max_bytes`` no more is read than shows so.

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


def decoded(content: bytes) -> str:
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
    if max(map(len, LINE_BREAK.split(text))) > _LONGEST_LINE:
        raise SkippedFileError("long_lines")
    return text


def parsed(text: str) -> ast.Module:
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
