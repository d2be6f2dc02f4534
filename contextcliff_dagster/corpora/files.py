"""The file corpus: a JSONL, JSON, CSV, TSV, Parquet or Arrow file with one row per example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import (
    PATH,
    Entry,
    StreamedCorpus,
    file_sha256,
    given_path,
    no_such_tasks,
    options_hash,
    take_options,
    unreadable,
)
from contextcliff_dagster.corpora.readers.row_to_example import FIELDS, RowReader
from contextcliff_dagster.corpora.readers.rows import ENDINGS, READERS, binary, is_utf16
from contextcliff_dagster.corpora.readers.tables import saved_files
from contextcliff_dagster.user_files import open_file

_LOOKED_AT = 1 << 16
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


class FileCorpus(StreamedCorpus):
    """Rows with ``context`` (or ``document``, ``text``), ``question``, ``answers`` (or ``answer``).

    Optional fields: ``id``, ``task``, ``level``, ``evidence_position`` (0..1),
    ``inter_evidence_tokens``, ``domain``, ``source``; any other field of at most 2,000 characters
    becomes metadata. Rows with the same context share one document.

    Options: ``path``, a file or a folder that `datasets` saved; ``format`` (default: by the file's
    ending); ``task`` for rows without one (``question_answering``); ``tasks``, to leave out rows of
    other tasks; ``columns``, a mapping from these names to the file's own.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        types = {"path": PATH, "format": str, "task": str, "tasks": list, "columns": Mapping}
        values = take_options("file", options, types)
        self.path = given_path("file", values)
        self.name = self.path.name
        self._task = values.get("task", "question_answering")
        self._tasks = values.get("tasks")
        self._columns = _checked_columns(values.get("columns", {}))
        self._format = _checked_format(self.path, values.get("format"))

    def fingerprint(self) -> str:
        options: dict[str, Any] = {
            "format": self._format,
            "task": self._task,
            "columns": self._columns,
        }
        if self._tasks is not None:
            options["tasks"] = self._tasks
        files = saved_files(self.path, CorpusError) or [self.path]
        return options_hash("file", options, *map(file_sha256, files))

    def entries(self) -> Iterator[Entry]:
        """Yield every row of the wanted tasks as an entry."""
        reader = RowReader(self._columns, self._task, untyped=self._format in ("csv", "tsv"))
        n_used = 0
        other_tasks: Counter[str] = Counter()
        for place, row in READERS[self._format](self.path):
            entry = reader.entry(row, place)
            if self._tasks is None or entry.example.task in self._tasks:
                n_used += 1
                yield entry
            else:
                other_tasks[entry.example.task] += 1
        if not n_used and self._tasks is not None and other_tasks:
            raise no_such_tasks(self.path, self._tasks, other_tasks)
        if not n_used:
            raise CorpusError(f"{self.path} holds no example; give at least one row.")
        if other_tasks:
            summary = f"{n_used:,} examples used; left out: {other_tasks.total():,} of other tasks."
            self._account = {"summary": summary, "left_out": dict(sorted(other_tasks.items()))}


def _checked_columns(columns: Mapping[Any, Any]) -> dict[str, str]:
    for field, column in columns.items():
        if field not in FIELDS or not isinstance(column, str):
            raise CorpusError(
                f"Option 'columns' maps {field!r} to {column!r}; it maps some of "
                f"{', '.join(FIELDS)} to column names of the file."
            )
    return dict(columns)


def _checked_format(path: Path, named: str | None) -> str:
    """Return the file's format, after checking that the file exists and is not empty."""
    if saved_files(path, CorpusError):
        return "arrow"
    if path.is_dir():
        raise CorpusError(f"{path} is a folder; choose one file in it.")
    try:
        with open_file(path) as file:
            start = file.read(_LOOKED_AT)
    except FileNotFoundError as error:
        raise CorpusError(f"There is no file {path}; check the corpus option 'path'.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not start:
        raise CorpusError(f"{path} is empty; give at least one row.")
    for magic, packing in _PACKED.items():
        if start.startswith(magic):
            raise CorpusError(f"{path} is compressed ({packing}); unpack it first.")
    chosen = named or ENDINGS.get(path.suffix.lower())
    if chosen is None and start.startswith(b"PAR1"):
        chosen = "parquet"
    if chosen not in READERS:
        problem = f"format {named!r}" if named else f"ending {path.suffix!r}"
        raise CorpusError(
            f"{path}: {problem} is not known; give option 'format' as one of {', '.join(READERS)}."
        )
    text = chosen != "arrow" and not start.startswith(b"PAR1") and not is_utf16(start)
    if text and b"\x00" in start:  # before hashing
        raise binary(path, 1 + start[: start.index(b"\x00")].count(b"\n"), CorpusError)
    if start.startswith(b"PAR1") != (chosen == "parquet"):
        raise CorpusError(
            f"{path} is {'not ' if chosen == 'parquet' else ''}a Parquet file; "
            f"it was to be read as {chosen}."
        )
    return chosen
