"""The table of questions next to the documents: finding it, reading it, matching its file names."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import Entry, no_such_tasks
from contextcliff_dagster.corpora.folder.file_report import Found, Walked
from contextcliff_dagster.corpora.readers.row_to_example import FIELDS, RowReader
from contextcliff_dagster.corpora.readers.rows import ENDINGS, READERS
from contextcliff_dagster.corpora.readers.tables import key_names, value_at

DOCUMENT_COLUMNS = ("document", "file", "filename", "path")
"""Names for the column with the document's file; the first one that exists is used."""
_NAMED = "questions"
_LONGEST_NAME = 1_024


class _Row(NamedTuple):
    place: str
    column: str  # the column that names the document
    fields: Mapping[str, Any]

    @property
    def document(self) -> str:
        return str(value_at(self.fields, self.column))


class QuestionTable:
    """A CSV, TSV, JSON Lines, JSON or Parquet file with one question per row.

    ``columns`` maps ``document``, ``question``, ``answers`` and the optional fields of the corpus
    kind ``file`` to the table's own names. Rows of tasks that are not in ``tasks`` are left out.
    """

    def __init__(
        self, path: Path, columns: Mapping[str, str], task: str, tasks: Sequence[str] | None = None
    ) -> None:
        self.path = path
        self._tasks = tasks
        self._others: Counter[str] = Counter()  # rows left out, by their task
        self._columns = {k: v for k, v in columns.items() if k != "document"}
        self._document = columns.get("document")
        self._task = task
        if path.suffix.lower() not in ENDINGS:
            raise CorpusError(
                f"{path} holds no table of questions that can be read; give CSV, TSV, JSONL, JSON "
                "or Parquet with the columns document, question, answers, or the word 'recall'."
            )
        if not path.is_file():
            raise CorpusError(f"There is no file of questions {path}; check the name.")

    def rows(self) -> Iterator[_Row]:
        """Yield every row, checked as far as is possible without its document.

        Raises:
            CorpusError: a column is missing, a cell is empty, or there is no row; with the place.
        """
        reader: RowReader | None = None
        column = ""
        self._others.clear()
        used = False
        for place, row in READERS[ENDINGS[self.path.suffix.lower()]](self.path):
            if not isinstance(row, Mapping):
                raise CorpusError(f"{place} is not a row with document, question and answers.")
            if reader is None or value_at(row, column) is None:
                column = self._document_column(row, place)
                reader = self._reader(column)
            name = value_at(row, column)
            if not isinstance(name, str) or not name.strip():
                raise CorpusError(
                    f"{place} has an empty {column!r}; give the file that the question is about."
                )
            if len(name) > _LONGEST_NAME:
                raise CorpusError(
                    f"{place} has {len(name):,} characters in {column!r}, which names a file here; "
                    "a table with whole texts in it is read by --data alone."
                )
            task = reader.entry(row, place, whole=False).example.task
            if self._tasks is None or task in self._tasks:
                used = True
                yield _Row(place, column, row)
            else:
                self._others[task] += 1
        if reader is None:
            raise CorpusError(f"{self.path} holds no question; give at least one row.")
        if self._tasks is not None and not used:
            raise no_such_tasks(self.path, self._tasks, self._others)

    def described(self) -> str:
        """Return the table's name, and the number of rows left out in the last reading."""
        left_out = f" ({self._others.total():,} of other tasks left out)" if self._others else ""
        return f"{self.path.name}{left_out}"

    def entry(self, row: _Row, text: str) -> Entry:
        """Return the row as an example about ``text``."""
        return self._reader(row.column).entry({**row.fields, row.column: text}, row.place)

    def _reader(self, column: str) -> RowReader:
        untyped = ENDINGS[self.path.suffix.lower()] in ("csv", "tsv")
        return RowReader({**self._columns, "context": column}, self._task, untyped=untyped)

    def _document_column(self, row: Mapping[str, Any], place: str) -> str:
        names = (self._document,) if self._document else DOCUMENT_COLUMNS
        for name in names:
            if name in row or value_at(row, name) is not None:
                return name
        found = ", ".join(repr(str(name)) for name in islice(key_names(row), 8))
        raise CorpusError(
            f"{place} has no column {names[0]!r} (it has {found or 'none'}): write a header with "
            "document, question, answers, or name yours under columns.document."
        )


def find_table(folder: Path, path: Path | None = None) -> Path | None:
    """Find the table of questions in ``folder`` itself, named ``questions.*`` or by its columns.

    A link that leads out of the folder is not followed.

    Raises:
        CorpusError: there are several tables and not exactly one with that name, or the table with
            that name is a link out of the folder.
    """
    try:
        files = sorted(folder.iterdir())
    except OSError:
        files = []
    paths = [
        file
        for file in files
        if file.suffix.lower() in ENDINGS and not file.name.startswith(".") and file.is_file()
    ]
    home = folder.resolve()
    out = [file for file in paths if not file.resolve().is_relative_to(home)]
    paths = [file for file in paths if file not in out]
    named = [file for file in paths if file.stem.lower() == _NAMED]
    for file in out:
        if not named and file.stem.lower() == _NAMED:
            raise CorpusError(
                f"{file} is a link out of the folder, which is not followed; if you mean that "
                "table, name it with --questions FILE (in a study: corpus.questions)."
            )
    tables = named or [file for file in paths if file != path and is_table_of_questions(file)]
    if len(tables) > 1:
        names = ", ".join(file.name for file in tables)
        raise CorpusError(
            f"{folder} holds several tables of questions ({names}); say which with --questions "
            "FILE (in a study: corpus.questions)."
        )
    return tables[0] if tables else None


def is_table_of_questions(file: Path) -> bool:
    """Return whether the first row has a question, answers, and a file name as its document.

    A table whose column ``document`` holds whole texts does not count.
    """
    if file.suffix.lower() not in ENDINGS:
        return False
    try:
        rows = [row for _, row in islice(READERS[ENDINGS[file.suffix.lower()]](file), 20)]
    except (CorpusError, OSError):
        return False
    if not rows or not isinstance(rows[0], Mapping):
        return False
    first = rows[0]
    column = next((name for name in DOCUMENT_COLUMNS if name in first), None)
    answers = any(name in first for name in FIELDS["answers"])
    if column is None or "question" not in first or not answers or "context" in first:
        return False
    names = [row.get(column) for row in rows if isinstance(row, Mapping)]
    like = [_like_a_name(name, file.parent) for name in names]
    return 2 * sum(like) > len(like)


def match_documents(
    rows: Sequence[_Row], files: Sequence[Found], walked: Walked
) -> dict[str, list[_Row]]:
    """Group rows by their document's file, given as a path below the folder or a unique name.

    Raises:
        CorpusError: no file, or several, have a row's name; with place and the nearest name.
    """
    by_path = {_plain(file.name): file.name for file in files}
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[_plain(file.name).rsplit("/", 1)[-1]].append(file.name)
    matched: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        name = _below(row.document, walked.home)
        candidates = [by_path[name]] if name in by_path else by_name.get(name, [])
        if len(candidates) > 1:
            raise CorpusError(
                f"{row.place} names {row.document!r}, but {len(candidates)} files have that name "
                f"({', '.join(candidates[:3])}{', ...' if len(candidates) > 3 else ''}); write "
                "the path below the folder."
            )
        if not candidates:
            raise _unknown_document(row, name, [*by_path, *by_name], walked)
        matched[candidates[0]].append(row)
    return matched


def _unknown_document(row: _Row, name: str, known: Sequence[str], walked: Walked) -> CorpusError:
    begins = f"{row.place} names the document {row.document!r}"
    for fate in walked.left_out:
        file = _plain(fate.file)
        if name == file or (file.endswith("/") and name.startswith(file)):
            return CorpusError(
                f"{begins}, but {fate.file} {fate.reason}; move it, or drop the question."
            )
    similar = difflib.get_close_matches(name, known, n=1) or [
        other for other in known if other.lower() == name.lower() or other.rsplit(".", 1)[0] == name
    ]
    hint = f"did you mean {similar[0]!r}?" if similar else "correct the name or drop the row."
    return CorpusError(f"{begins}, which is not in {walked.home}; {hint}")


def _below(name: str, home: Path) -> str:
    """Normalise a name to the form of the files' names: below the folder, slashes, no ``./``."""
    path = _plain(name.strip()).replace("\\", "/")
    path = path.removeprefix(_plain(str(home)).rstrip("/") + "/")
    while path.startswith("./"):
        path = path[2:]
    return path


def _plain(name: str) -> str:
    # macOS decomposes accents (NFD), tables mostly do not.
    return unicodedata.normalize("NFC", name)


def _like_a_name(name: Any, folder: Path) -> bool:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or "\n" in name:
        return False
    stem, dot, ending = name.strip().rpartition(".")
    if dot and stem and len(ending) <= 8 and ending.isalnum() and not ending.isdigit():
        return True
    with suppress(OSError, ValueError):  # the name is too long, or contains NUL
        return (folder / name.strip()).exists()
    return False
