"""The corpus `folder`: your documents as they are, with every file accounted for."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError, Document
from contextcliff_dagster.corpora.corpus import (
    PATH,
    WORDINGS,
    Entry,
    StreamedCorpus,
    document_id,
    given_path,
    one_of,
    options_hash,
    seeded_place,
    take_options,
)
from contextcliff_dagster.corpora.extraction import (
    Extracted,
    Limits,
    Unusable,
    extract_all,
    extractor_version,
)
from contextcliff_dagster.corpora.extraction.file_type import SCANNED
from contextcliff_dagster.corpora.folder import file_report
from contextcliff_dagster.corpora.folder.file_report import Fate, Found, Walked, walk
from contextcliff_dagster.corpora.folder.questions import (
    QuestionTable,
    find_table,
    is_table_of_questions,
    match_documents,
)
from contextcliff_dagster.corpora.folder.verbatim_recall import (
    TASK,
    recall_example,
    recall_questions,
)
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.user_files import open_file

_NUMBERS = {  # option: default, least
    "questions_per_document": (5, 1),
    "seed": (0, 0),
    "min_characters": (0, 0),
}
RECALL = "recall"
"""Value of the option ``questions`` that requests verbatim recall instead of a table."""

_LEAST_TO_RECALL = 200
"""Minimum length in characters of a document used for verbatim recall."""


class FolderCorpus(StreamedCorpus):
    """Documents in a folder (PDF, DOCX, EPUB, HTML, Markdown, text, source code) and questions.

    Options: ``path``, a folder or one file; ``questions``, a table (CSV, TSV, JSONL, JSON, Parquet)
    with ``document``, ``question``, ``answers``, or ``recall`` for questions of verbatim recall; by
    default, the table is searched for in the folder. ``columns``, ``task``, ``tasks`` as in the
    corpus ``file``. For recall: ``questions_per_document`` (5), ``seed`` (0), ``recall_question``
    (``sentence``, or ``beginning``: the bare beginning, for prompts that begin the answer with it).
    ``min_characters``: shorter documents are left out. ``limits``: limits on reading one file,
    named as in `extraction.Limits`.

    Texts are used whole or left out and accounted for (`account`, `file_list`). The same files and
    options give the same entries, ordered by file name.
    """

    name = "folder"

    def __init__(self, options: Mapping[str, Any]) -> None:
        types = {
            **dict.fromkeys(("path", "questions"), PATH),
            **dict.fromkeys(("columns", "limits"), Mapping),
            **dict.fromkeys(("task", "recall_question"), str),
            "tasks": list,
        }
        values = take_options(self.name, options, types, _NUMBERS)
        self.path = given_path(self.name, values)
        if not self.path.is_dir() and not self.path.is_file():
            if self.path.exists():
                raise CorpusError(f"{self.path} is not a regular file; use a folder or a document.")
            raise CorpusError(
                f"There is no file or folder {self.path}; check the corpus option 'path'."
            )
        self._numbers = {name: values[name] for name in _NUMBERS}
        self._limits = _checked_limits(values.get("limits", {}))
        self._recall = values.get("questions") == RECALL
        self._wording = one_of("recall_question", values.get("recall_question"), WORDINGS)
        self._task, self._tasks = values.get("task"), values.get("tasks")
        self._columns = dict(values.get("columns", {}))
        self._table = None if self._recall else self._open_table(values.get("questions"))
        if self._recall and self._task not in (None, TASK):
            raise CorpusError(
                f"Questions of verbatim recall are of the task {TASK!r}, not {self._task!r}; leave "
                "'task' out, or name a table under 'questions'."
            )
        self._fates: list[Fate] = []

    def fingerprint(self) -> str:
        # The list of files, the bytes of those that are read, and why the others are not.
        walked = walk(self.path)
        content = hashlib.sha256()
        for file in walked.found:
            content.update(f"{file.name}\0{self._digest(file.path)}\n".encode())
        for fate in walked.left_out:
            content.update(f"{fate.file}\0{fate.reason}\n".encode())
        if self._table is not None:
            content.update(self._digest(self._table.path).encode())
        options = {
            **self._numbers,
            "recall": self._wording if self._recall else None,
            "task": [self._task, self._tasks],
            "columns": self._columns,
            "limits": {name: n for name, n in asdict(self._limits).items() if name != "workers"},
            "extraction": extractor_version(),
        }
        return options_hash(self.name, options, content.hexdigest())

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """Return every file in the last reading and what happened to it, sorted by name."""
        return [asdict(fate) | {"notes": "; ".join(fate.notes)} for fate in self._fates]

    def entries(self) -> Iterator[Entry]:
        """Yield the questions about every document; those of a table name known ones."""
        files, rows_by_file, fates = self._to_read()
        lost, first, n_used = Counter[str](), dict[str, str](), 0
        results = extract_all((file.path for file in files), self._limits)
        for n, (file, result) in enumerate(zip(files, results, strict=True), 1):
            report_step("reading files", n, len(files))
            fate = self._judged(file, result, first)
            rows = rows_by_file[file.name] if rows_by_file is not None else None
            entries: list[Entry] = []
            if isinstance(result, Extracted) and fate.fate in ("used", "duplicate"):
                entries = self._entries(file, result, fate, rows)
                if not entries and fate.fate == "used":
                    fate = fate.left_out("no_question", "has no unique statement to ask about")
            elif rows is not None:
                lost[fate.fate] += len(rows)
            fates.append(replace(fate, questions=len(entries)))
            n_used += len(entries)
            yield from entries
        self._fates = sorted(fates, key=lambda fate: fate.file)
        source = None if self._table is None else self._table.described()
        account = file_report.account_of(self._fates, n_used, lost, source)
        self._account = account | {"extraction": extractor_version()}
        if not n_used:
            reasons = file_report.first_reasons(self._fates)
            raise CorpusError(f"{self.path} gives no question: {reasons}. {account['summary']}")

    def count_to_read(self) -> int:
        """Count the files that would be read, whatever they contain.

        Raises:
            CorpusError: the table of questions cannot be used.
        """
        return len(self._to_read()[0])

    def scans(self, most: int) -> tuple[list[str], int]:
        """Return which of the ``most`` smallest PDF files hold no text, and how many were read.

        Raises:
            CorpusError: the table of questions cannot be used.
        """
        files = [file for file in self._to_read()[0] if file.path.suffix.lower() == ".pdf"]
        files = sorted(files, key=lambda file: file.path.stat().st_size)[:most]
        results = extract_all((file.path for file in files), self._limits)
        scans = [
            file.name
            for file, result in zip(files, results, strict=True)
            if isinstance(result, Unusable) and result.reason == SCANNED
        ]
        return scans, len(files)

    def _to_read(self) -> tuple[list[Found], dict[str, list[Any]] | None, list[Fate]]:
        """Return the files to read, the rows about each file, and the fates of all other files."""
        walked = walk(self.path)
        self._refuse_nothing(walked)
        tables = [file for file in walked.found if self._is_table(file)]
        files = [file for file in walked.found if file not in tables]
        rows = self._asked(walked, files)
        fates = list(walked.left_out)
        fates += [Fate(file.name, "questions", "holds questions") for file in tables]
        if rows is not None:
            reason = "has no question in the table"
            fates += [Fate(f.name, "no_question", reason) for f in files if f.name not in rows]
            files = [file for file in files if file.name in rows]
        return files, rows, fates

    def _open_table(self, named: str | Path | None) -> QuestionTable:
        folder = self.path if self.path.is_dir() else self.path.parent
        path = Path(named).expanduser() if named is not None else find_table(folder, self.path)
        if path is None:
            self._refuse_nothing(walk(self.path))
            raise CorpusError(
                f"{self.path} comes without questions: put a table questions.csv with the columns "
                f"document, question, answers into {folder}, name one with --questions FILE, or "
                "ask for verbatim recall with --questions recall (in a study: "
                "corpus.questions)."
            )
        return QuestionTable(path, self._columns, self._task or "question_answering", self._tasks)

    def _refuse_nothing(self, walked: Walked) -> None:
        if not walked.found:
            counts = file_report.counted(walked.left_out)
            details = f" ({file_report.listed(counts)})" if counts["found"] else ""
            raise CorpusError(
                f"{self.path} holds no file to read{details}; choose a folder with documents."
            )

    def _digest(self, path: Path) -> str:
        try:
            size = path.stat().st_size
            if size > self._limits.file_mb * 1e6:  # too large to be read
                return f"{size} bytes"
            with open_file(path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return str(error.strerror or error)

    def _is_table(self, file: Found) -> bool:
        """Return whether the file is a table of questions (the study's or a leftover)."""
        if self._table is not None:
            table = self._table.path
            return file.path.name == table.name and file.path.resolve() == table.resolve()
        return "/" not in file.name and is_table_of_questions(file.path)

    def _asked(self, walked: Walked, files: Sequence[Found]) -> dict[str, list[Any]] | None:
        if self._table is None:
            return None
        rows = list(self._table.rows())
        if not self.path.is_dir():
            file = self.path.name
            rows = [row for row in rows if Path(row.document.replace("\\", "/")).name == file]
            if not rows:
                raise CorpusError(
                    f"{self._table.path} has no question about {file}; give the folder instead of "
                    "the file, or add one."
                )
        return match_documents(rows, files, walked)

    def _judged(self, file: Found, result: Extracted | Unusable, first: dict[str, str]) -> Fate:
        """Return the file's fate according to its text; ``first`` maps a text to its first file."""
        if isinstance(result, Unusable):
            return Fate(file.name, "unreadable", result.reason)
        n = len(result.text)
        fate = Fate(file.name, "used", format=result.kind, characters=n, notes=result.notes)
        least = max(self._numbers["min_characters"], _LEAST_TO_RECALL * self._recall)
        if not result.text.strip():
            return fate.left_out("empty", "holds no text")
        if n < least:
            return fate.left_out("too_short", f"has {n:,} characters, of {least:,} that are needed")
        fate = replace(fate, document_id=document_id(result.text))
        if (same := first.setdefault(fate.document_id, file.name)) != file.name:
            return fate.left_out("duplicate", f"has the same text as {same}")
        return fate

    def _entries(
        self, file: Found, result: Extracted, fate: Fate, rows: Sequence[Any] | None
    ) -> list[Entry]:
        entries: list[Entry] = []
        if rows is not None:
            assert self._table is not None
            # Questions on a second copy are asked, too, about the document that both copies share.
            entries = [self._table.entry(row, result.text) for row in rows]
        elif fate.fate == "used":
            document = Document(fate.document_id, result.text)
            n_questions, seed = self._numbers["questions_per_document"], self._numbers["seed"]
            questions = recall_questions(
                result.text,
                code=result.kind == "code",
                most=n_questions,
                order=partial(seeded_place, seed, fate.document_id),
            )
            bare = self._wording == "beginning"
            examples = [recall_example(document, question, bare=bare) for question in questions]
            entries = [Entry(document, example, file.name) for example in examples]
        about = {"source": file.name, "format": result.kind}
        if "/" in file.name:
            about["domain"] = file.name.split("/")[0]
        return [
            entry._replace(
                example=replace(entry.example, metadata={**about, **entry.example.metadata})
            )
            for entry in entries
        ]


def _checked_limits(given: Mapping[Any, Any]) -> Limits:
    names = list(Limits.__dataclass_fields__)
    for name, value in given.items():
        if name not in names or isinstance(value, bool) or not isinstance(value, int | float):
            raise CorpusError(
                f"Option 'limits' maps {name!r} to {value!r}; it maps some of "
                f"{', '.join(names)} to numbers."
            )
    try:
        return Limits(**given)
    except ValueError as error:
        raise CorpusError(f"Option 'limits': {error}") from error
