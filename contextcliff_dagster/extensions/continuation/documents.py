"""Contexts and author passages of a study, which are cut from its texts, stored and listed."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from contextcliff_dagster.archive.container import damaged, malformed
from contextcliff_dagster.archive.results import KEPT_MEMBERS, KeptList
from contextcliff_dagster.contracts import Example, StoreError, StudyError, conform
from contextcliff_dagster.corpora.corpus import document_id
from contextcliff_dagster.corpora.extraction.file_type import Limits
from contextcliff_dagster.experiments.common.documents import (
    DocumentList,
    KeptDocuments,
    MadeDocuments,
    opened_tokenizer,
    read_list,
    tokenizer_name,
    tokenizer_of,
    write_list,
)
from contextcliff_dagster.extensions.continuation.compat.slicing import (
    Slices,
    sliced,
    source_text,
    trimmed,
)
from contextcliff_dagster.extensions.continuation.passages import (
    Point,
    ReadText,
    author_after,
    choose_points,
    context_before,
    read_text,
)
from contextcliff_dagster.extensions.continuation.prompts import TEMPLATE_TOKENS, instruction_of
from contextcliff_dagster.extensions.continuation.prose.words import read_prose
from contextcliff_dagster.extensions.continuation.section import (
    LEFT_FOR_TEMPLATE,
    Cell,
    ContinuationSection,
)
from contextcliff_dagster.extensions.continuation.tables import CONTINUATION_DOCUMENTS
from contextcliff_dagster.sampling.manifest import PlannedExample
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study


_Changed = tuple[int, int]
"""A file's size and time of last change; if either differs, the file is read again."""
_TEXTS_KEPT = 8


def section_of(study: Study) -> ContinuationSection:
    """Return the `continuation` section of a study."""
    section: ContinuationSection = study.sections["continuation"]
    return section


def read_source(study: Study, number: int) -> ReadText:
    """Return the study's text at position ``number`` of `texts`.

    Raise StudyError if the user has not allowed the file, or it cannot be read.
    """
    tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    return _read(*_file_of(study, number), name, tokenizer_name(study, "continuation"))


class SourceDigests(NamedTuple):
    """SHA-256 digests (hex) of a text's file and of its extracted text."""

    file: str
    text: str


def source_digests(
    study: Study, number: int, kept: Mapping[str, Sequence[str]] | None = None
) -> SourceDigests:
    """Return the digests of the study's text at position ``number`` of `texts`.

    If the file is gone, or the user has not allowed reading it, return the digests in ``kept``
    (name -> file and text digest), because the documents are stored.

    Raises:
        StudyError: as `read_source`, if ``kept`` has no digests of the text.
    """
    name = section_of(study).text_names[number]
    stored = SourceDigests(*kept[name]) if kept and name in kept else None
    try:
        file, changed = _file_of(study, number)
        if changed[0] > Limits().file_mb * 1e6:
            _extracted(file, changed)  # refuses the file before reading it
        digest = _file_digest(file, changed)
    except StudyError:
        if stored is None:
            raise
        return stored
    if stored is not None and stored.file == digest:
        return stored
    return SourceDigests(digest, _text_digest(file, changed))


def _file_of(study: Study, number: int) -> tuple[Path, _Changed]:
    """Return the path of a text's file, with its size and time of last change."""
    from contextcliff_dagster.studies.study import absolute, refuse_without_leave

    refuse_without_leave(study, "continuation.texts")
    file = Path(absolute(study.folder, section_of(study).texts[number]))
    try:
        status = file.stat()
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else None
        raise StudyError(
            f"Text {file} of study {study.name!r} cannot be read: {problem or error}; correct "
            "`continuation.texts`."
        ) from error
    return file, (status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _file_digest(file: Path, changed: _Changed) -> str:
    try:
        with open_file(file) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise StudyError(
            f"Text {file} cannot be read: {error.strerror or error}; correct `continuation.texts`."
        ) from error


@lru_cache(maxsize=256)
def _text_digest(file: Path, changed: _Changed) -> str:
    return hashlib.sha256(_extracted(file, changed).encode()).hexdigest()


@lru_cache(maxsize=_TEXTS_KEPT)
def _read(file: Path, changed: _Changed, name: str, tokenizer: str) -> ReadText:
    return read_text(name, _extracted(file, changed), opened_tokenizer(tokenizer))


@lru_cache(maxsize=_TEXTS_KEPT)
def _extracted(file: Path, changed: _Changed) -> str:
    from contextcliff_dagster.corpora.extraction.file_type import Unusable
    from contextcliff_dagster.corpora.extraction.pool import extract_all

    (result,) = extract_all([file])
    if isinstance(result, Unusable):
        raise StudyError(f"Text {file} {result.reason}; give another file, or convert it to text.")
    if not result.text.strip():
        raise StudyError(f"Text {file} holds no text; give another file.")
    return result.text


MAKING_VERSION = "1"
"""Version of the documents; raise it when a change alters them, so that they are created again."""
WORDS_A_TOKEN = 0.7
"""Words in the author's passage per token of the longest continuation."""
MOST_HUMAN, LEAST_HUMAN = 80, 20
"""Maximum noise-floor passages from one text, and minimum from all texts together."""

_SPARE = 1.3
"""Distance between passages, as a multiple of their average length in characters."""
_MOST_READ = 1 << 22
"""Characters of a text used to estimate the average length of a passage."""

Kind = Literal["context", "author", "human", "source"]
"""Kinds of documents; `source` has only the length of a compat study's text, not its words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of the documents that are cut from each text.

    Attributes:
        sizes: windows in tokens, smallest first.
        reserved: tokens of a window that are not context: continuation, instruction, template.
        max_tokens: tokens of the longest continuation.
        passages: number of points in a text.
        seed: seed for drawing the points.
    """

    sizes: Sequence[int]
    reserved: int
    max_tokens: int
    passages: int
    seed: int

    @property
    def words(self) -> int:
        """Return the number of words in an author's passage."""
        return max(1, int(WORDS_A_TOKEN * self.max_tokens))

    def points(self, text: ReadText) -> tuple[Point, ...]:
        """Return the points of a text; raise as `choose_points` does."""
        most = self.sizes[-1] - self.reserved
        return choose_points(text, self.passages, most, self.max_tokens, self.seed)


def passage_rows(plan: Plan, point: Point, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield the contexts of a point, smallest first, then the author's passage."""
    for size in plan.sizes:
        context = context_before(point, size - plan.reserved, tokenizer)
        yield document_row("context", point.text.name, point.name, size, context, tokenizer)
    passage = author_after(point, plan.words)
    yield document_row("author", point.text.name, point.name, 0, passage, tokenizer)


def human_rows(plan: Plan, text: ReadText, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield author passages that overlap none of those that continuations are compared with."""
    for number, place in enumerate(human_places(plan, text)):
        passage = author_after(Point("", text, place), plan.words)
        yield document_row("human", text.name, f"{number:03d}", 0, passage, tokenizer)


def human_places(plan: Plan, text: ReadText) -> list[int]:
    """Return the character positions at which the human passages begin.

    They begin at sentence ends, do not overlap, and are spread evenly over the text.
    """
    sample = text.text[:_MOST_READ]
    reach = int(_SPARE * plan.words * len(sample) / max(1, _words_of(sample)))
    points = [point.at for point in plan.points(text)]
    spots, free_from = [], 0
    for at in text.ends:
        near = any(abs(at - point) < reach for point in points)
        if at >= free_from and at + reach <= len(text.text) and not near:
            spots.append(at)
            free_from = at + reach
    indices = np.unique(np.linspace(0, len(spots) - 1, min(MOST_HUMAN, len(spots))).round())
    return [spots[place] for place in indices.astype(int)]


@lru_cache(maxsize=8)
def _words_of(text: str) -> int:
    return len(read_prose(text).words)


def require_noise_floor(counts: Mapping[str, int], words: int) -> None:
    """Raise StudyError if the texts hold too few human passages for the score.

    ``counts`` maps each text to its number of human passages of ``words`` words.
    """
    poor = [name for name, count in counts.items() if count < 4]
    if sum(counts.values()) < LEAST_HUMAN or poor:
        raise StudyError(
            f"The texts hold {sum(counts.values())} further passages of {words} words"
            f"{f', too few in {poor[0]!r}' if poor else ''}; the score needs at least "
            f"{LEAST_HUMAN} in all and 4 from each text to know how much an author varies: "
            "give longer texts, or lower `continuation.passages` or `continuation.max_tokens`."
        )


def document_row(
    kind: Kind, source: str, passage: str, size: int, text: str, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return a row of `CONTINUATION_DOCUMENTS`; ``size`` is the window, or 0 if not a context."""
    return {
        "document_id": document_id(text),
        "kind": kind,
        "source": source,
        "passage": passage,
        "context_tokens": size,
        "length_tokens": tokenizer.count(text),
        "text": text,
    }


LISTED = ("document_id", "kind", "source", "passage", "context_tokens", "length_tokens")
"""Columns included in the document list, which are all that the model calls need."""
HUMAN = "human"
"""Partition with the human passages; each point has a partition of its own."""


def documents_dir(store: Store, study: str) -> Path:
    """Return the folder of the documents and their list."""
    return store.study_dir(study) / "continuation_documents"


def part_file(store: Store, study: str, text: str, part: str) -> Path:
    """Return the file of a partition; ``part`` is the `point_key` of a point, or `HUMAN`."""
    return documents_dir(store, study) / text / f"{part}.parquet"


def point_key(number: int) -> str:
    """Return a point's number as a partition key; keys sort in the order of the points.

    >>> point_key(7)
    'p007'
    """
    return f"p{number:03d}"


def write_part(path: Path, rows: Iterable[Mapping[str, Any]], made_by: str) -> None:
    """Write all documents of a partition atomically; raise StoreError if that fails."""
    write_table(path, [{**row, "made_by": made_by} for row in rows], CONTINUATION_DOCUMENTS)


def read_part(path: Path, made_by: str | None = None) -> list[dict[str, Any]] | None:
    """Return the `LISTED` columns of a partition, or None if ``made_by`` differs from its own."""
    with suppress(StoreError):
        table = read_table(path, CONTINUATION_DOCUMENTS, {"made_by", *LISTED})
        rows: list[dict[str, Any]] = table.to_pylist()
        makers = {row.pop("made_by") for row in rows}
        if rows and (made_by is None or makers == {made_by}):
            return rows
    return None


def read_texts(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a partition with their texts; raise StoreError if one is damaged."""
    rows: list[dict[str, Any]] = read_table(path, CONTINUATION_DOCUMENTS).to_pylist()
    for row in rows:
        if hashlib.sha256(row["text"].encode()).hexdigest() != row["document_id"]:
            raise StoreError(
                f"{path}: document {row['document_id'][:12]} is not the original text; delete "
                "the file and prepare the study again."
            )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the numbers of contexts, tokens and human passages for reports."""
    contexts = [row["length_tokens"] for row in rows if row["kind"] == "context"]
    return {
        "contexts": len(contexts),
        "tokens": sum(contexts),
        "longest_tokens": max(contexts, default=0),
        "human_passages": sum(row["kind"] == "human" for row in rows),
    }


TASK = "continuation"
Row = Mapping[str, Any]


class ContinuationSamples:
    """`SampleSource` for the contexts (`LISTED` rows) in cells that share a recipe.

    ``asked`` is the instruction; ``file_of`` maps a context's id to its file in the store.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        documents: Sequence[Row],
        asked: str,
        file_of: Mapping[str, Path],
    ) -> None:
        self._cells = {cell.key: cell for cell in cells}
        self._contexts = [row for row in documents if row["kind"] == "context"]
        self._asked, self._file_of = asked, file_of

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]:
        """Return the first ``n`` points of a cell: the first of each text, then the second."""
        if (cell := self._cells.get(bin)) is None:
            return []
        rows = [row for row in self._contexts if row["context_tokens"] == cell.tokens]
        rows.sort(key=lambda row: (row["passage"].rpartition("-")[2], row["source"]))
        return [
            PlannedExample(self._example(cell, row), int(row["length_tokens"]), bin, rank)
            for rank, row in enumerate(rows[:n])
        ]

    def document_text(self, document_id: str) -> str:
        """Return a context's text; raise StoreError if the store does not have it."""
        if document_id not in self._file_of:
            raise StoreError(f"There is no context {document_id[:12]}; prepare the study again.")
        file = self._file_of[document_id]
        texts = _texts(file, file.stat().st_mtime_ns if file.exists() else 0)
        if document_id not in texts:
            raise StoreError(f"{file} has changed; run the same command again.")
        return texts[document_id]

    def _example(self, cell: Cell, row: Row) -> Example:
        return Example(
            f"{cell.key}-{row['passage']}",
            row["document_id"],
            self._asked,
            (),
            TASK,
            {
                "text": row["source"],
                "passage": row["passage"],
                "context_tokens": cell.tokens,
                "arm": cell.arm,
            },
        )


@lru_cache(maxsize=4)
def _texts(file: Path, changed: int) -> dict[str, str]:
    return {row["document_id"]: row["text"] for row in read_texts(file)}


class ContinuationDocuments(KeptDocuments):
    """Documents of the experiment, partitioned by text and by point (or human passages)."""

    table = CONTINUATION_DOCUMENTS
    description = (
        "For each text: a point's contexts of every size with the author's next passage (p000, "
        "p001, ...), and other passages of the author, which show how much human prose varies "
        "(human)."
    )

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        section = section_of(study)
        points = [point_key(number) for number in range(section.passages)]
        human = [] if section.compat else [HUMAN]
        return {"document": section.text_names, "part": [*human, *points]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        keys = self.keys(study)
        text, part = partition["document"], partition["part"]
        if text not in keys["document"] or part not in keys["part"]:
            raise StudyError(
                f"Study {study.name!r} has no documents {text}, {part}; see `continuation` in "
                "its file."
            )
        if _list(study, store) is None:
            _require_room(study)
        rows = _ensure_part(study, store, keys["document"].index(text), part)
        ids = json.dumps([row["document_id"] for row in rows])
        return MadeDocuments(hashlib.sha256(ids.encode()).hexdigest(), summary(rows))

    def write(self, study: Study, store: Store) -> None:
        keys = self.keys(study)
        parts = [(n, part) for n in range(len(keys["document"])) for part in keys["part"]]
        rows = []
        for done, (number, part) in enumerate(parts):
            report_step("passages", done, len(parts))
            rows += _ensure_part(study, store, number, part)
        report_step("passages", len(parts), len(parts))
        human = Counter(row["source"] for row in rows if row["kind"] == "human")
        if not section_of(study).compat:
            counts = {text: human[text] for text in keys["document"]}
            require_noise_floor(counts, plan_of(study).words)
        store.mark()
        sources = {name: list(digests) for name, digests in _digests(study, store).items()}
        write_list(documents_dir(store, study.name), _spec_hash(study, store), rows, sources)

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        index = _list(study, store)
        if index is None or not all(file.exists() for file in _files(study, store)):
            return None
        return MadeDocuments(index.sha256, summary(index.documents))

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        keys = section.model_dump(mode="json", include={"texts", "max_tokens", "passages", "seed"})
        plan = plan_of(study)
        return {
            **keys,
            "sizes": list(plan.sizes),
            "reserved": plan.reserved,
            "tokenizer": tokenizer_name(study, "continuation"),
            **({"compat": section.compat} if section.compat else {}),
        }

    def archived(self, study: Study, store: Store) -> KeptList | None:
        stored_list = read_list(documents_dir(store, study.name))
        if self.frozen(study, store) is None or stored_list is None or not stored_list.sources:
            return None
        rows = [row for file in _files(study, store) for row in read_texts(file)]
        return KeptList(stored_list.made_by, stored_list.sources, rows)

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        """Return a function that restores documents (see `KeptDocuments`), unless a list exists."""
        folder, names = documents_dir(store, study.name), section_of(study).text_names
        with malformed(file, KEPT_MEMBERS[0]):
            digests = {name: SourceDigests(*map(str, of)) for name, of in kept.sources.items()}
        by_part: dict[tuple[str, str], list[dict[str, Any]]] = {}
        with malformed(file, KEPT_MEMBERS[1]):
            for row in kept.rows:
                by_part.setdefault((row["source"], part_of(row)), []).append(dict(row))
        if {text for text, _ in by_part} != set(names) or set(digests) != set(names):
            raise damaged(file, "its documents do not match the texts of its study")
        makers = {}
        for place, rows in by_part.items():
            with malformed(file, KEPT_MEMBERS[1]):
                try:
                    conform(rows, CONTINUATION_DOCUMENTS)
                except StoreError as error:
                    raise ValueError("columns") from error
                (makers[place],) = {str(row.pop("made_by")) for row in rows}
        if read_list(folder, kept.made_by) is not None:
            return lambda: None
        if read_list(folder) is not None:
            raise StoreError(
                f"{file} holds other documents of study {study.name!r} than {folder}; import it "
                "into another store with --store DIR."
            )
        listed = [{name: row[name] for name in LISTED} for rows in by_part.values() for row in rows]

        def write() -> None:
            for (text, part), rows in by_part.items():
                write_part(part_file(store, study.name, text, part), rows, makers[text, part])
            sources = {name: list(of_text) for name, of_text in digests.items()}
            write_list(folder, kept.made_by, listed, sources)

        return write


DOCUMENTS = ContinuationDocuments()


def plan_of(study: Study) -> Plan:
    """Return the plan of the documents cut from each text.

    Raise StudyError without a tokenizer, or if the smallest window holds no context.
    """

    section = section_of(study)
    prompt = tokenizer_of(study, "continuation").count(instruction_of(section))
    reserved = section.max_tokens + prompt + TEMPLATE_TOKENS
    if section.sizes[0] - reserved < section.max_tokens // 2:
        raise StudyError(
            f"Study {study.name!r}: the smallest window, {section.sizes[0]:,} tokens, leaves "
            f"{max(0, section.sizes[0] - reserved):,} for the context, after "
            f"{section.max_tokens:,} for the continuation and {prompt + TEMPLATE_TOKENS:,} for the "
            "instruction; raise "
            "`continuation.start_context` or lower `continuation.max_tokens`."
        )
    return Plan(section.sizes, reserved, section.max_tokens, section.passages, section.seed)


def listed(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return the documents of a study (`LISTED`), after creating those that are missing."""
    DOCUMENTS.freeze(study, store)
    stored_list = _list(study, store)
    assert stored_list is not None
    return stored_list.documents


def passages(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the author and human passages of a study, one source text after another."""
    DOCUMENTS.freeze(study, store)
    for file in _files(study, store):
        for row in read_texts(file):
            if row["kind"] != "context":
                yield row


def _files(study: Study, store: Store) -> Iterator[Path]:
    """Yield the file of each partition, one source text after another."""
    keys = DOCUMENTS.keys(study)
    for text in keys["document"]:
        for part in keys["part"]:
            yield part_file(store, study.name, text, part)


def require_texts(study: Study) -> None:
    """Raise StudyError unless the texts can be read and are long enough; creates no documents."""
    _require_room(study)
    section = section_of(study)
    texts = [read_source(study, number) for number in range(len(section.texts))]
    if not section.compat:
        plan = plan_of(study)
        counts = {text.name: len(human_places(plan, text)) for text in texts}
        require_noise_floor(counts, plan.words)


def _require_room(study: Study) -> None:
    """Raise StudyError if the largest size fits into the window of no model."""
    from contextcliff_dagster.inference.models.models_file import get_model

    section, rooms = section_of(study), []
    for entry in map(get_model, study.models):
        reserve = LEFT_FOR_TEMPLATE if entry.spec.remote and not section.compat else 0
        rooms.append((entry.window_tokens or sys.maxsize) - reserve)
    if rooms and max(rooms) < section.max_context:
        raise StudyError(
            f"Study {study.name!r}: {section.max_context:,} tokens fit into the window of no "
            f"model; lower `continuation.max_context` to {max(rooms):,}, which leaves room for a "
            "chat template."
        )


def _list(study: Study, store: Store) -> DocumentList | None:
    """Return the stored document list if it matches the current ``study``, else None."""
    folder = documents_dir(store, study.name)
    # If there is no list at all, no text has to be read.
    return read_list(folder, _spec_hash(study, store)) if read_list(folder) else None


def _digests(study: Study, store: Store) -> dict[str, SourceDigests]:
    """Return the digests of the texts by name; for a missing file those of the document list."""
    stored_list = read_list(documents_dir(store, study.name))
    digests = stored_list.sources if stored_list else {}
    names = section_of(study).text_names
    return {name: source_digests(study, number, digests) for number, name in enumerate(names)}


def _maker(study: Study, plan: Plan, text_sha256: str, fingerprint: str) -> str:
    """Return the SHA-256 (hex) of everything that determines a text's documents."""
    compat = section_of(study).compat
    text = f"{text_sha256} {compat}" if compat else text_sha256
    inputs = [MAKING_VERSION, repr(plan), text, fingerprint]
    return hashlib.sha256("\0".join(inputs).encode()).hexdigest()


def _spec_hash(study: Study, store: Store) -> str:
    plan, fingerprint = plan_of(study), tokenizer_of(study, "continuation").fingerprint
    digests = _digests(study, store).values()
    joined = "".join(_maker(study, plan, digest.text, fingerprint) for digest in digests)
    return hashlib.sha256(joined.encode()).hexdigest()


def _ensure_part(study: Study, store: Store, number: int, part: str) -> list[dict[str, Any]]:
    """Return the documents of a partition, creating them if the store lacks them."""
    plan, tokenizer = plan_of(study), tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    maker = _maker(study, plan, _digests(study, store)[name].text, tokenizer.fingerprint)
    path = part_file(store, study.name, name, part)
    if (stored_rows := read_part(path, maker)) is None:
        text = read_source(study, number)
        if section_of(study).compat:
            rows = compat_rows(study, name)
        elif part == HUMAN:
            rows = human_rows(plan, text, tokenizer)
        else:
            rows = passage_rows(plan, plan.points(text)[int(part.removeprefix("p"))], tokenizer)
        write_part(path, rows, maker)
        stored_rows = read_part(path, maker) or []
    return stored_rows


_NUMBER = re.compile(r"\d{1,3}")


def part_of(row: Mapping[str, Any]) -> str:
    """Return a document's partition; raise ValueError if its passage does not end in a number."""
    if row["kind"] == HUMAN:
        return HUMAN
    number = str(row["passage"]).rpartition("-")[2]
    if not _NUMBER.fullmatch(number):
        raise ValueError("passage")
    return point_key(int(number))


_TEMPLATE_TOKENS = 108
"""Tokens of the largest window reserved for a chat template, besides the reference's 20, because a
prompt that might not fit is not sent."""


def slices_of(study: Study) -> Slices:
    """Cut the text of a compat study; raise StudyError or DataError without a text."""
    section = section_of(study)
    text = read_source(study, 0).text  # raises if the user has not allowed the tokenizer
    tokenizer, instruction = tokenizer_name(study, "continuation"), instruction_of(section)
    return _cut(text, tokenizer, section.max_context, section.max_tokens, instruction)


def compat_rows(study: Study, name: str) -> Iterator[dict[str, Any]]:
    """Yield the contexts of ``study``, smallest first, the author's continuation and the length
    of the text.

    The first size that the text does not fill, and all larger sizes, have no context.

    Raises:
        StudyError: the text does not fill even the smallest size.
    """
    section, tokenizer = section_of(study), tokenizer_of(study, "continuation")
    slices, passage = slices_of(study), f"{name}-00"
    largest = section.max_context - _TEMPLATE_TOKENS
    for size in section.sizes:
        if not slices.has(min(size, largest)):
            if size == section.sizes[0]:
                raise StudyError(
                    f"Text {name!r} does not fill the smallest window of study {study.name!r}, "
                    f"{size:,} tokens; raise `continuation.start_context` or lower "
                    "`continuation.max_tokens`."
                )
            break
        context = trimmed(slices.context(min(size, largest)))
        yield document_row("context", name, passage, size, context, tokenizer)
    yield document_row("author", name, passage, 0, slices.ground_truth, tokenizer)
    whole = document_row("source", name, passage, 0, "", tokenizer)
    yield {**whole, "length_tokens": slices.source_tokens}


@lru_cache(maxsize=2)
def _cut(text: str, tokenizer: str, max_context: int, max_tokens: int, instruction: str) -> Slices:
    counter = opened_tokenizer(tokenizer)
    return sliced(source_text(text), counter, max_context, max_tokens, instruction)
