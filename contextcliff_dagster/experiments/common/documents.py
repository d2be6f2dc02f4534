"""Documents that an experiment generates before measuring, and their lists with hashes.

They are two assets: ``<experiment>_documents``, with its own partitions, and
``<experiment>_manifest``, which generates missing documents and lists them all, with a hash.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from contextcliff_dagster.contracts import Example, StudyError, Table
from contextcliff_dagster.corpora.materialize import read_rows, read_summary, write_rows
from contextcliff_dagster.inference.execution.cost_estimate import SCAFFOLD_CHARS_PER_TOKEN
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.sampling.length_map import read_length_map
from contextcliff_dagster.sampling.manifest import PlannedExample
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
from contextcliff_dagster.store import Store, write_json
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import refuse_without_leave

if TYPE_CHECKING:
    from contextcliff_dagster.archive.results import KeptList

_NAME = "manifest.json"


class DocumentList(NamedTuple):
    """A stored list: its ``sha256``, a row for each document, and the other fields as written."""

    sha256: str
    made_by: str
    documents: list[dict[str, Any]]
    sources: dict[str, Any]


def write_list(
    folder: Path,
    made_by: str,
    documents: Sequence[Mapping[str, Any]],
    sources: Mapping[str, Any] | None = None,
) -> str:
    """Write the document list if missing; return its SHA-256.

    ``sources``: source files of the documents, if files determine them.

    Raises:
        StoreError: the list cannot be written.
    """
    content: dict[str, Any] = {"made_by": made_by, "documents": list(documents)}
    if sources:
        content["sources"] = dict(sources)
    digest = json_sha256(content)
    known = read_list(folder, made_by)
    if known is None or known.sha256 != digest:
        write_json(folder / _NAME, {**content, "sha256": digest})
    return digest


def read_list(folder: Path, made_by: str | None = None) -> DocumentList | None:
    """Return the list; None if it is missing or damaged, or has another ``made_by`` hash."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        whole = json.loads((folder / _NAME).read_bytes())
        digest = whole.pop("sha256")
        if made_by in (None, whole["made_by"]) and json_sha256(whole) == digest:
            sources = dict(whole.get("sources", {}))
            return DocumentList(digest, whole["made_by"], list(whole["documents"]), sources)
    return None


def json_sha256(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of ``content`` as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


TOO_LONG, TOO_SHORT = "too_long", "too_short"


def file_list(study: Study, store: Store, account: Mapping[str, Any]) -> Path | None:
    """Return the path of the list; None if the corpus has no list."""
    name = Path(str(account.get("list") or "")).name  # of an archive: it must not lead elsewhere
    path = store.manifest_dir(study.name) / name
    return path if name and path.is_file() else None


def keep_file_list(study: Study, store: Store, corpus: Path, length_map: Path) -> None:
    """Add token counts to the list, and note files that are too long or too short.

    A document is too long if, by the study's count, it leaves no room for prompt and answer in the
    smallest window of the models. It stays in the sample: a call that does not fit by its model's
    own count is recorded as context_overflow and not sent. Does nothing without a list.

    Raises:
        StoreError: the length map was not built, or the list cannot be written.
    """
    name = read_summary(corpus).account.get("list")
    if not name:
        return
    lengths = read_length_map(length_map, 0)
    tokens = dict(
        zip(lengths["document_id"].to_pylist(), lengths["length_tokens"].to_pylist(), strict=True)
    )
    windows = {name: w for name in study.models if (w := get_model(name).window_tokens)}
    model = min(windows, key=lambda name: windows[name], default="")
    recipe = study.recipe()
    scaffold = sum(map(len, recipe.render("", "", 0).contents()))
    overhead = math.ceil(scaffold / SCAFFOLD_CHARS_PER_TOKEN) + recipe.max_output_tokens
    least = study.sampling.min_tokens
    rows: list[dict[str, Any]] = []
    for row in read_rows(corpus / str(name)):
        length = tokens.get(row["document_id"]) if row["fate"] == "used" else None
        fate, reason = row["fate"], row["reason"]
        if length is not None and model and length + overhead > windows[model]:
            fate = TOO_LONG
            reason = (
                f"does not fit the window of {model} ({windows[model]:,} tokens, about "
                f"{overhead:,} of them for prompt and answer) by the study's count"
            )
        elif length is not None and length < least:
            fate, reason = TOO_SHORT, f"is shorter than sampling.min_tokens ({least:,})"
        rows.append({**row, "fate": fate, "reason": reason, "tokens": length})
    write_rows(store.manifest_dir(study.name) / str(name), rows)


def notes_on_files(study: Study, store: Store, account: Mapping[str, Any]) -> list[str]:
    """Return sentences for the report on what became of the files; empty without a list."""
    if not account.get("list"):
        return []
    parts = [str(account.get("summary", ""))]
    path = file_list(study, store, account)
    if path is None:  # an imported study has the sample, not the list
        return parts
    fates = [row["fate"] for row in read_rows(path)]
    if long := fates.count(TOO_LONG):
        parts.append(
            f"Of the files used, {long:,} do not fit the smallest window by the study's count."
        )
    parts.append(f"Outcome of each file: {path.parent.name}/{path.name} in the study's folder.")
    return parts


def new_files_note(study: Study, store: Store, account: Mapping[str, Any]) -> str | None:
    """Return a sentence on files added to the folder since the sample was drawn; None without any.

    Only names are compared; no file is opened.
    """
    from contextcliff_dagster.corpora.folder.file_report import walk

    listed = file_list(study, store, account)
    folder = Path(str(study.corpus_options.get("path", "")))
    if listed is None or study.corpus.kind != "folder" or not folder.is_dir():
        return None
    try:
        refuse_without_leave(study, "corpus")
    except StudyError:  # an imported study may not look into the folder that it names
        return None
    known = {row["file"] for row in read_rows(listed)}
    new = sum(file.name not in known for file in walk(folder).found)
    files = "1 new file is" if new == 1 else f"{new:,} new files are"
    remedy = (
        f"`contextcliff prepare {study.name}` draws a sample with {'it' if new == 1 else 'them'}"
    )
    return f"{files} in {folder}: {remedy}." if new else None


@dataclass(frozen=True)
class Made:
    """A question about a document generated for it; ``task`` and ``metadata`` as in Example."""

    document: str
    question: str
    answers: tuple[str, ...]
    task: str = "generated"
    metadata: Mapping[str, Any] = field(default_factory=dict)


class GeneratedSamples:
    """A source (`inference.requests.call_plan.SampleSource`) that generates documents by cell.

    ``make`` returns a cell's questions in the order of asking, the same on each call. ``count``
    returns a text's number of tokens.
    """

    def __init__(self, make: Callable[[str], Iterable[Made]], count: Callable[[str], int]) -> None:
        self._make, self._count = make, count
        self._cells: dict[str, list[PlannedExample]] = {}
        self._texts: dict[str, str] = {}

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """Return the first ``n`` examples of a cell."""
        if bin not in self._cells:
            planned = []
            for rank, new in enumerate(self._make(bin)):
                document_id = hashlib.sha256(new.document.encode()).hexdigest()
                self._texts[document_id] = new.document
                name, metadata = f"{bin}-{rank:04d}", dict(new.metadata)
                example = Example(name, document_id, new.question, new.answers, new.task, metadata)
                planned.append(PlannedExample(example, self._count(new.document), bin, rank))
            self._cells[bin] = planned
        return self._cells[bin][:n]

    def document_text(self, document_id: str) -> str:
        """Return the text of a document; its example must have been planned."""
        return self._texts[document_id]


DEFAULT_TOKENIZER = "tiktoken:o200k_base"


@dataclass(frozen=True)
class MadeDocuments:
    """Generated documents in the store. ``sha256``: their hash, the asset's data version.

    ``values``: JSON-ready metadata to show.
    """

    sha256: str
    values: Mapping[str, Any] = field(default_factory=dict)


class KeptDocuments(ABC):
    """The procedure by which an experiment generates, stores and lists its documents.

    Documents are stored under a hash of everything that determines them, so repetition costs
    nothing. ``version``: raise it if the same study would get other documents. ``table``: their
    rows, if they are a table. ``description``: description of the documents in the UI.
    """

    version: ClassVar[str] = "1"
    table: ClassVar[Table | None] = None
    description: ClassVar[str] = (
        "Documents made for this study; a second method verifies the answers of each."
    )

    @abstractmethod
    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        """Return both partition dimensions: Dagster's name -> partition keys (slugs), fixed by the
        study file alone. Dagster iterates over the dimensions in the order of their names."""

    @abstractmethod
    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        """Generate the documents of one partition (dimension -> key) unless they are stored.

        Raises:
            StudyError: the documents cannot be made as the study specifies.
            StoreError: the store cannot be written.
        """

    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        """Return the list of all documents, rewritten if it does not belong to ``study``.

        Raises:
            StudyError, StoreError: as `make`.
        """
        if self.frozen(study, store) is None:
            self.write(study, store)
        frozen = self.frozen(study, store)
        assert frozen is not None
        return frozen

    @abstractmethod
    def write(self, study: Study, store: Store) -> None:
        """Write all documents that the store lacks, and their list; raise as `make`."""

    @abstractmethod
    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        """Return the stored list if it belongs to ``study``, else None; nothing is generated."""

    @abstractmethod
    def depends_on(self, study: Study) -> Mapping[str, Any]:
        """Return the parts of ``study`` that determine the documents, JSON-ready."""

    def archived(self, study: Study, store: Store) -> KeptList | None:
        """Return the content for an archive of ``study``; None if the study alone determines the
        documents, so that they can be made again anywhere.

        Raises:
            StoreError: the documents cannot be read.
        """
        return None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        """Return a function that writes ``kept``, from the archive ``file``, into ``store``.

        Raises:
            StoreError: the documents do not belong to ``study``, or the store has others.
        """
        raise NotImplementedError


def refuse_prompt_keys(study: Study, experiment: str, repeated_by: str) -> None:
    """Refuse keys of `prompt` that an experiment with prompts of its own cannot apply.

    ``repeated_by``: its key that repeats calls. A study with a corpus uses `prompt` elsewhere.

    Raises:
        StudyError: such a key is set.
    """
    if study.has_corpus:
        return
    for key in ("template", "instructions", "output_schema"):
        if getattr(study.prompt, key) is not None:
            raise StudyError(
                f"Study {study.name!r}: {experiment} has its own prompts, so `prompt.{key}` would "
                "change nothing; remove it."
            )
    if study.prompt.replicates > 1:
        raise StudyError(
            f"Study {study.name!r}: `prompt.replicates` does not repeat {experiment}; remove it, "
            f"and raise `{experiment}.{repeated_by}`."
        )


def tokenizer_name(study: Study, key: str) -> str:
    """Return the tokenizer name for documents: from the section ``key``, the study, or ours."""
    named: str = study.sections[key].tokenizer
    return named or study.tokenizer_name or DEFAULT_TOKENIZER


def tokenizer_of(study: Study, key: str) -> Tokenizer:
    """Open the tokenizer of `tokenizer_name`.

    Raises:
        StudyError: the tokenizer does not exist or cannot be opened.
    """
    refuse_without_leave(study, "tokenizer")
    return opened_tokenizer(tokenizer_name(study, key))


@lru_cache(maxsize=2)
def opened_tokenizer(name: str) -> Tokenizer:
    """Open a tokenizer by name, once; raise StudyError if that fails."""
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)
