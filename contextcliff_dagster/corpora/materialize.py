"""Writes corpora to Parquet once: documents.parquet, examples.parquet and a summary.

Several corpora are written as one. If the corpus has a list of files, it is written as well.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    EXAMPLES,
    CorpusError,
    Example,
    StoreError,
    Table,
    conform,
)
from contextcliff_dagster.corpora.corpus import Entry, StreamedCorpus, options_hash, take_options
from contextcliff_dagster.freed_memory import lean_arrow
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import atomic_path, write_atomic

if TYPE_CHECKING:
    import pyarrow as pa

PARTS = "parts"


class MixedCorpus(StreamedCorpus):
    """A corpus of several parts: the entries of one part after another, with unchanged texts.

    Options: ``parts``, a list of corpora, each with its ``kind``, that kind's own options, and a
    ``name`` if two have the same kind. The name is the ``source`` of every example, used to show
    the mix in each bin and to compare the curve at an equal mix; a source given by the part itself
    becomes ``source_in_part``. Each part's ids are prefixed with its name.
    """

    name = "mixed"

    def __init__(
        self,
        options: Mapping[str, Any],
        open_part: Callable[[str, Mapping[str, Any]], StreamedCorpus],
    ) -> None:
        parts = take_options(self.name, options, {PARTS: list}).get(PARTS) or []
        if len(parts) < 2:
            raise CorpusError(
                "A corpus of kind 'mixed' needs the option 'parts', a list of two or more corpora: "
                "each with its kind and that kind's options."
            )
        self._parts: dict[str, StreamedCorpus] = {}
        for number, part in enumerate(parts, start=1):
            name, kind, part_options = _part_options(part, number)
            if name in self._parts:
                raise CorpusError(
                    f"Two parts of the corpus are named {name!r}; give each a 'name' of its own."
                )
            try:
                self._parts[name] = open_part(kind, part_options)
            except CorpusError as error:
                raise CorpusError(f"Part {name!r} of the corpus: {error}") from error

    def fingerprint(self) -> str:
        content = [part.fingerprint() for part in self._parts.values()]
        return options_hash(self.name, {PARTS: list(self._parts)}, *content)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all parts, one part after another; errors name the part."""
        for name, part in self._parts.items():
            try:
                for entry in part.entries():
                    yield _of_part(name, entry)
            except CorpusError as error:
                raise CorpusError(f"Part {name!r} of the corpus: {error}") from error

    def account(self) -> Mapping[str, Any]:
        """Return the parts' accounts by name, with a common summary and all cautions."""
        accounts = {name: dict(part.account()) for name, part in self._parts.items()}
        known = {name: account for name, account in accounts.items() if account}
        combined: dict[str, Any] = {
            PARTS: accounts,
            "summary": " ".join(f"{name}: {account['summary']}" for name, account in known.items()),
            "cautions": [
                f"{name}: {caution}"
                for name, account in known.items()
                for caution in account.get("cautions", ())
            ],
            "manufactured": {
                f"{name}: {task}": how
                for name, account in known.items()
                for task, how in account.get("manufactured", {}).items()
            },
            "list": next((account["list"] for account in known.values() if "list" in account), ""),
        }
        return {key: value for key, value in combined.items() if value}

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """Return the parts' lists, adding the part's name to each row."""
        rows = [
            {"part": name, **row} for name, part in self._parts.items() for row in part.file_list()
        ]
        columns = dict.fromkeys(column for row in rows for column in row)
        return [{column: row.get(column, "") for column in columns} for row in rows]


def _part_options(part: Any, number: int) -> tuple[str, str, dict[str, Any]]:
    """Return a part's name, kind and options."""
    which = f"Part {number} of the corpus"
    if not isinstance(part, Mapping) or not isinstance(part.get("kind"), str):
        raise CorpusError(
            f"{which} needs a 'kind', and that kind's options next to it, not {part!r}."
        )
    options = {key: value for key, value in part.items() if key not in ("kind", "name")}
    kind, name = part["kind"], part.get("name", part["kind"])
    if kind == MixedCorpus.name:
        raise CorpusError(f"{which} is of kind 'mixed' itself; give its parts here instead.")
    if not isinstance(name, str) or not name.strip():
        raise CorpusError(f"{which} needs text as its 'name', not {name!r}.")
    return name.strip(), kind, options


def _of_part(name: str, entry: Entry) -> Entry:
    example = entry.example
    metadata = {**example.metadata, "source": name}
    if (source := example.metadata.get("source")) not in (None, name):
        metadata["source_in_part"] = source
    identity = f"{name}/{example.example_id}" if entry.id_given else example.example_id
    return entry._replace(
        example=replace(example, example_id=identity, metadata=metadata),
        place=f"{name}: {entry.place}",
    )


QUESTIONS = ("document_id", "question")
"""Columns that identify a question: its document's id and its text."""
_SUMMARY = "corpus.json"
_GROUP_BYTES = 1 << 20
_REPORTED = 200
"""Number of examples between two progress reports."""
_KNOWN_METADATA = ("level", "evidence_position", "inter_evidence_tokens", "domain", "source")


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """Summary of a materialized corpus.

    ``text_bytes``: UTF-8 bytes of the distinct documents. ``repeated_rows``: rows without
    an id whose document, question, answers and task had all been seen; they are left out.
    ``account``: the corpus's account of its source (:meth:`StreamedCorpus.account`).
    """

    name: str
    fingerprint: str
    documents: int
    examples: int
    text_bytes: int
    repeated_rows: int
    account: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        # Corpora without an account keep their earlier manifests and hashes.
        return fields if self.account else {k: v for k, v in fields.items() if k != "account"}


def materialize_corpus(corpus: StreamedCorpus, directory: Path) -> CorpusSummary:
    """Write ``documents.parquet`` (each distinct text once) and ``examples.parquet``.

    One pass over the source, in memory that does not grow with the text: some 100 bytes a document
    and 8 bytes an example are kept, to tell duplicates. The files appear when all is written.

    Raises:
        CorpusError: a row cannot be used, or two rows carry the same id.
        StoreError: the directory cannot be written.
    """
    seen_documents: set[bytes] = set()
    derived_ids: set[bytes] = set()
    given_ids = array("q")
    text_bytes = n_examples = repeated = 0
    fingerprint = corpus.fingerprint()
    with (
        lean_arrow(),
        # Renamed in reverse order: the summary, in place last, means that both are complete.
        _writer(directory / "documents.parquet", DOCUMENTS) as add_document,
        _writer(directory / "examples.parquet", EXAMPLES) as add_example,
    ):
        for entry in corpus.entries():
            example, document = entry.example, entry.document
            if entry.repeats(derived_ids):
                repeated += 1
                continue
            if entry.id_given:
                # hash() may collide and differs between processes: it only gives candidates.
                given_ids.append(hash(example.example_id))
            key = bytes.fromhex(document.document_id)
            if key not in seen_documents:
                seen_documents.add(key)
                size = len(document.text.encode())
                text_bytes += size
                add_document({"document_id": document.document_id, "text": document.text}, size)
            row = example_row(example)
            add_example(row, 200 + len(example.question) + len(row["metadata"] or ""))
            n_examples += 1
            if n_examples % _REPORTED == 0:
                report_step("reading examples", n_examples)
        _refuse_repeated_ids(corpus, given_ids)
        if not n_examples:
            raise CorpusError(
                f"The corpus {corpus.name!r} has no examples; nothing can be measured."
            )
    account = corpus.account()
    if name := account.get("list"):
        write_rows(directory / str(name), corpus.file_list())
    summary = CorpusSummary(
        corpus.name, fingerprint, len(seen_documents), n_examples, text_bytes, repeated, account
    )
    write_atomic(directory / _SUMMARY, (json.dumps(summary.to_dict(), indent=2) + "\n").encode())
    return summary


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that have the same columns as CSV (UTF-8, RFC 4180).

    Text that a spreadsheet would read as a formula gets a leading apostrophe (OWASP, "CSV
    injection"); numbers stay numbers.

    Raises:
        StoreError: it cannot be written.
    """
    text = StringIO(newline="")
    if rows:
        writer = csv.writer(text)
        writer.writerow(map(_guarded, rows[0]))
        writer.writerows(map(_guarded, row.values()) for row in rows)
    write_atomic(path, text.getvalue().encode())


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows that :func:`write_rows` wrote; none if the file no longer exists."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8", newline="") as file:
        names, *rows = [list(map(_unguarded, row)) for row in csv.reader(file)] or [[]]
        return [dict(zip(names, row, strict=False)) for row in rows]
    return []


_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def _guarded(value: Any) -> Any:
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _unguarded(value: str) -> str:
    return value[1:] if value.startswith("'") and _FORMULA.match(value) else value


def read_summary(directory: Path) -> CorpusSummary:
    """Read the summary of the corpus in ``directory``.

    Raises:
        StoreError: it is missing or damaged.
    """
    path = directory / _SUMMARY
    try:
        return CorpusSummary(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise StoreError(f"There is no corpus in {directory}; materialize it first.") from error
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); delete it and materialize again."
        ) from error


def read_questions(directory: Path) -> Iterator[pa.RecordBatch]:
    """Yield the columns `QUESTIONS` of a materialized corpus in batches of a few rows."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(directory / "examples.parquet") as file:
        yield from file.iter_batches(8_192, columns=list(QUESTIONS))


def example_row(example: Example) -> dict[str, Any]:
    """Return the example as a row of ``examples``; fields without a column go into ``metadata``."""
    metadata = {k: v for k, v in example.metadata.items() if k not in _KNOWN_METADATA}
    return {
        "example_id": example.example_id,
        "document_id": example.document_id,
        "task": example.task,
        "question": example.question,
        "answers": list(example.answers),
        **{name: example.metadata.get(name) for name in _KNOWN_METADATA},
        "metadata": json.dumps(metadata, sort_keys=True, ensure_ascii=False) if metadata else None,
    }


def row_example(row: Mapping[str, Any]) -> Example:
    """Return the example from a row that :func:`example_row` wrote; ignore further columns."""
    metadata = {name: row[name] for name in _KNOWN_METADATA if row.get(name) is not None}
    if row.get("metadata"):
        metadata.update(json.loads(row["metadata"]))
    return Example(
        example_id=row["example_id"],
        document_id=row["document_id"],
        question=row["question"],
        answers=tuple(row["answers"]),
        task=row["task"],
        metadata=metadata,
    )


@contextmanager
def _writer(path: Path, table: Table) -> Iterator[Callable[[dict[str, Any], int], None]]:
    """Yield a function that adds a row and its size to a Parquet file, which appears at the end."""
    import pyarrow.parquet as pq

    pending: list[dict[str, Any]] = []
    size = 0
    schema = table.arrow_schema()
    # Whole texts do not repeat and are not compared: a dictionary or statistics would only copy.
    repeating = [name for name in ("task", "domain", "source") if name in schema.names]
    options = {"compression": "zstd", "use_dictionary": repeating or False}
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(temporary, schema, write_statistics=False, **options) as file,
    ):

        def add(row: dict[str, Any], row_bytes: int) -> None:
            nonlocal size
            pending.append(row)
            size += row_bytes
            if size >= _GROUP_BYTES:
                file.write_table(conform(pending, table))
                pending.clear()
                size = 0

        yield add
        if pending:
            file.write_table(conform(pending, table))


def _refuse_repeated_ids(corpus: StreamedCorpus, hashes: array[int]) -> None:
    """Look up the ids whose hashes occur twice; refuse ids that are really repeated."""
    import numpy as np

    values, counts = np.unique(np.frombuffer(hashes, dtype=np.int64), return_counts=True)
    suspects = set(values[counts > 1].tolist())
    if not suspects:
        return
    first: dict[str, str] = {}
    for entry in corpus.entries():
        name = entry.example.example_id
        if entry.id_given and hash(name) in suspects:
            if name in first:
                raise CorpusError(
                    f"{entry.place} repeats the id {name!r} of {first[name]}; "
                    "give every example its own id, or none at all."
                )
            first[name] = entry.place
