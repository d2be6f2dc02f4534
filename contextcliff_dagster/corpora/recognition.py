"""What lies at a path: a table of examples, a public benchmark, or documents to be read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.recognition import ENDINGS, benchmarks_of
from contextcliff_dagster.corpora.folder.questions import find_table, is_table_of_questions
from contextcliff_dagster.corpora.folder.walk import walk

_TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".pq")
_PACKED = (".gz", ".zip", ".zst", ".bz2", ".xz", ".tar", ".tgz", ".7z", ".rar")
_BESIDE = ("readme", "license", "licence", "citation", "changelog", "dataset_info")
"""How files begin that come along with a benchmark and say nothing of what the folder is."""
_LOOKED_INTO = 40
"""Files of a folder whose records are looked at."""


class Recognised(NamedTuple):
    """A kind of corpus, and its options."""

    kind: str
    options: dict[str, str]


def recognise(path: Path, questions: str | None = None) -> Recognised:
    """The corpus that reads ``path``, by its content; ``questions`` as in the corpus ``folder``.

    - A table with texts in it is a corpus of kind ``file``; a table whose column ``document`` names
      files is the questions of the folder that it lies in.
    - Records of a public benchmark, in a file or a folder that holds little else, are read by that
      benchmark's adapter.
    - Any other file or folder is documents.

    Raises:
        CorpusError: two benchmarks share this format, or files of several lie together.
    """
    if questions is not None:
        return Recognised("folder", {"path": str(path), "questions": questions})
    if path.is_dir():
        return _folder(path)
    ending = path.suffix.lower()
    if not path.is_file() or ending in _PACKED or _is_parquet(path):
        return _benchmark_or_file(path)
    if ending in _TABLES and is_table_of_questions(path):
        return Recognised("folder", {"path": str(path.parent), "questions": str(path)})
    if ending in _TABLES or benchmarks_of(path):
        return _benchmark_or_file(path)
    return Recognised("folder", {"path": str(path)})


def _benchmark_or_file(path: Path) -> Recognised:
    found = benchmarks_of(path) if path.is_file() else set()
    if not found:
        return Recognised("file", {"path": str(path)})
    return Recognised(_only(found, path), {"path": str(_whole(path, found))})


def _whole(path: Path, found: set[str]) -> Path:
    # NarrativeQA's table is nothing without the stories beside it.
    return path.parent if found == {"narrativeqa"} and path.suffix.lower() == ".csv" else path


def _folder(path: Path) -> Recognised:
    documents = Recognised("folder", {"path": str(path)})
    if find_table(path) is not None:
        return documents
    files = [file for file in walk(path).found if not _comes_along(file.name)]
    if any(file.path.name == "qaps.csv" and benchmarks_of(file.path) for file in files):
        return Recognised("narrativeqa", {"path": str(path)})
    records = [file for file in files if file.path.suffix.lower() in ENDINGS]
    if not records or 2 * len(records) < len(files):
        return documents
    each = {file.name: benchmarks_of(file.path) for file in islice(records, _LOOKED_INTO)}
    if not all(each.values()):
        return documents
    common = set.intersection(*each.values())
    if not common:
        first = {sorted(kinds)[0]: name for name, kinds in reversed(each.items())}
        held = ", ".join(f"{kind} ({name})" for kind, name in sorted(first.items()))
        raise CorpusError(
            f"{path} holds files of several benchmarks: {held}; name one of the files with --data."
        )
    return Recognised(_only(common, path), {"path": str(path)})


def _only(found: set[str], path: Path) -> str:
    if len(found) > 1:
        names = " or ".join(sorted(found))
        raise CorpusError(
            f"{path} may be of {names}, whose formats are the same: say which in a study with "
            f"corpus: {{kind: {sorted(found)[0]}, path: {path}}}."
        )
    return next(iter(found))


def _comes_along(name: str) -> bool:
    file = name.rsplit("/", 1)[-1].lower()
    return file.startswith(_BESIDE) or file.endswith((".py", ".sh"))


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False
