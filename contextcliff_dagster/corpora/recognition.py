"""Recognition of what a path holds: a table of examples, a public benchmark, or documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.recognition import (
    ENDINGS,
    KNOWN,
    PACKED,
    benchmarks_of,
)
from contextcliff_dagster.corpora.folder.file_report import walk
from contextcliff_dagster.corpora.folder.questions import find_table, is_table_of_questions
from contextcliff_dagster.corpora.readers.row_to_example import FIELDS
from contextcliff_dagster.corpora.readers.rows import ENDINGS as TABLE_ENDINGS
from contextcliff_dagster.corpora.readers.rows import READERS
from contextcliff_dagster.corpora.readers.tables import key_names, saved_files, value_at
from contextcliff_dagster.user_files import open_file

_COMPANIONS = ("readme", "license", "licence", "citation", "changelog", "dataset_info")
"""Prefixes of the names of files that accompany a benchmark but do not identify it."""
_LENGTH = re.compile("token|length", re.IGNORECASE)
_SCORE = re.compile("score|correct|judge|grade|accuracy", re.IGNORECASE)
"""Names of score columns in a table of results."""
_LOOKED_INTO = 40
"""Maximum number of files in a folder whose records are read."""


class Recognised(NamedTuple):
    """A kind of corpus, and its options."""

    kind: str
    options: dict[str, Any]


def recognise(
    path: Path, questions: str | None = None, columns: Mapping[str, str] | None = None
) -> Recognised:
    """Return the corpus for ``path`` by its content; ``questions`` is an option of ``folder``.

    - With ``columns`` (our names -> the table's), it is a table, or a folder with one.
    - A table with texts in it is a corpus of kind ``file``; a table whose column ``document`` names
      files holds the questions about its own folder.
    - Records of a public benchmark, in a file or a folder that holds little else, are read by that
      benchmark's adapter.
    - Any other file or folder counts as documents.

    Raises:
        CorpusError: two benchmarks share this format, or files of several are mixed.
    """
    saved = saved_files(path, CorpusError)
    named = {"columns": dict(columns)} if columns else {}
    if named and "document" in named["columns"] and path.is_file():
        path, questions = path.parent, questions or str(path)
    if questions is not None:
        return Recognised("folder", {"path": str(path), "questions": questions, **named})
    if named:
        of_documents = path.is_dir() and not saved
        return Recognised("folder" if of_documents else "file", {"path": str(path), **named})
    if saved:
        kinds = benchmarks_of(saved[0])
        return _benchmark(kinds, path, path) if kinds else Recognised("file", {"path": str(path)})
    if path.is_dir():
        return _folder(path)
    ending = path.suffix.lower()
    benchmarks = benchmarks_of(path) if path.is_file() else set()
    if path.is_file() and ending not in PACKED and not _is_parquet(path):
        if ending in TABLE_ENDINGS and is_table_of_questions(path):
            return Recognised("folder", {"path": str(path.parent), "questions": str(path)})
        if ending not in TABLE_ENDINGS and not benchmarks:
            return Recognised("folder", {"path": str(path)})
    if not benchmarks:
        _refuse_other_fields(path)
        return Recognised("file", {"path": str(path)})
    # NarrativeQA's table needs the stories next to it.
    is_table = benchmarks == {"narrativeqa"} and ending == ".csv"
    return _benchmark(benchmarks, path, path.parent if is_table else path)


def _refuse_other_fields(path: Path) -> None:
    """Raise CorpusError if the first record has no text under any known field name."""
    kind = ENDINGS.get(path.suffix.lower())
    first: object = None
    with suppress(CorpusError, OSError):  # the reader of the file reports the error
        first = next((row for _, row in READERS[kind](path)), None) if kind else None
    if isinstance(first, Mapping) and first and not any(n in first for n in FIELDS["context"]):
        first = {name: value_at(first, name) for name in key_names(first)}
        names = ", ".join(repr(str(name)[:40]) for name in islice(first, 8))
        hint = f"readable are {', '.join(KNOWN)}"
        if columns := _columns_of_results(first):
            file = shlex.quote(str(path))
            hint = f"analyse it as results: `contextcliff analyze {file} --columns {columns}`"
        raise CorpusError(
            f"{path} is neither a table of examples (with 'context', 'question', 'answers'; it has "
            f"{names}) nor a known benchmark; {hint}."
        )


def _columns_of_results(row: Mapping[Any, Any]) -> str | None:
    """Return the length and score columns for `analyze --columns`; None unless both exist."""
    lengths = [n for n, v in row.items() if _LENGTH.search(str(n)) and str(v).strip().isdigit()]
    scores = [n for n in row if n not in lengths and _SCORE.search(str(n))]
    return f"length_tokens={lengths[0]},score={scores[0]}" if lengths and scores else None


def _folder(path: Path) -> Recognised:
    documents = Recognised("folder", {"path": str(path)})
    if find_table(path) is not None:
        return documents
    files = [file for file in walk(path).found if not _comes_along(file.name)]
    if any(file.path.name == "qaps.csv" and benchmarks_of(file.path) for file in files):
        return Recognised("narrativeqa", {"path": str(path)})
    if stories := sum(file.path.suffix == ".content" for file in files):
        raise CorpusError(
            f"{path} holds {stories:,} stories of NarrativeQA (.content) and not their table "
            "qaps.csv; put that next to them, or name the folder that holds both."
        )
    records = [file for file in files if file.path.suffix.lower() in ENDINGS]
    if not records or 2 * len(records) < len(files):
        return documents
    each = {file.name: benchmarks_of(file.path) for file in records[:_LOOKED_INTO]}
    recognised = {name: kinds for name, kinds in each.items() if kinds}
    if not recognised:
        return documents
    common = set.intersection(*recognised.values())
    unknown = [name for name in each if name not in recognised]
    if not common or unknown:
        first = {sorted(kinds)[0]: name for name, kinds in reversed(recognised.items())}
        contents = [f"{kind} ({name})" for kind, name in sorted(first.items())]
        if unknown:
            contents.append(f"{len(unknown):,} of no known benchmark ({unknown[0]})")
        mix = "files of several benchmarks" if not common else "files of a benchmark among others"
        raise CorpusError(
            f"{path} holds {mix}: {', '.join(contents)}; choose one of the files with --data."
        )
    return _benchmark(common, path, path)


def _benchmark(kinds: set[str], named: Path, path: Path) -> Recognised:
    if len(kinds) > 1:
        raise CorpusError(
            f"{named} may be of {' or '.join(sorted(kinds))}, whose formats are the same: say "
            f"which with --dataset {min(kinds)} (in a study: corpus.kind)."
        )
    return Recognised(min(kinds), {"path": str(path)})


def _comes_along(name: str) -> bool:
    file = name.rsplit("/", 1)[-1].lower()
    return file.startswith(_COMPANIONS) or file.endswith((".py", ".sh"))


def _is_parquet(path: Path) -> bool:
    with suppress(OSError), open_file(path) as file:
        return file.read(4) == b"PAR1"
    return False
