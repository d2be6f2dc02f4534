"""The contexts of a study and its authors' passages: made from texts, kept in the store, listed."""

from __future__ import annotations

import hashlib
import json
import re
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
from contextcliff_dagster.extensions.continuation.section import Cell, ContinuationSection
from contextcliff_dagster.extensions.continuation.tables import CONTINUATION_DOCUMENTS
from contextcliff_dagster.sampling.manifest import PlannedExample
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.user_files import open_file

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study


_Changed = tuple[int, int]
"""Size and time of the last change: a file with others is read again."""
_TEXTS_KEPT = 8


def section_of(study: Study) -> ContinuationSection:
    """Return the study's key `continuation`."""
    section: ContinuationSection = study.sections["continuation"]
    return section


def read_source(study: Study, number: int) -> ReadText:
    """Return a text of the study, by its place in `texts`.

    Raises:
        StudyError: its user has not agreed to the file, it cannot be read, or it holds no text.
    """
    tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    return _read(*_file_of(study, number), name, tokenizer_name(study, "continuation"))


class SourceDigests(NamedTuple):
    """SHA-256 (hex) of a text's file, and of the text in it."""

    file: str
    text: str


def source_digests(
    study: Study, number: int, kept: Mapping[str, Sequence[str]] | None = None
) -> SourceDigests:
    """Return the digests of a text, by its place in `texts`.

    Where the file is gone, or its user has not agreed to reading it, those in ``kept`` (name ->
    both) stand in: what was made of it is in the store.

    Raises:
        StudyError: as `read_source`, and nothing is kept.
    """
    name = section_of(study).text_names[number]
    known = SourceDigests(*kept[name]) if kept and name in kept else None
    try:
        file, changed = _file_of(study, number)
        if changed[0] > Limits().file_mb * 1e6:
            _extracted(file, changed)  # refuses it, before so much is read
        digest = _file_digest(file, changed)
    except StudyError:
        if known is None:
            raise
        return known
    if known is not None and known.file == digest:
        return known
    return SourceDigests(digest, _text_digest(file, changed))


def _file_of(study: Study, number: int) -> tuple[Path, _Changed]:
    """A text's file, and what an edit changes of it."""
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
"""Raise it when the same study would give other documents: those in stores are then made anew."""
WORDS_A_TOKEN = 0.7
"""Words of the author's passage per token of the longest continuation."""
MOST_HUMAN, LEAST_HUMAN = 80, 20
"""Passages of a text for the noise floor at most, and of all texts together at least."""

_SPARE = 1.3
"""Characters that passages are apart, in those that so many words take on average."""
_MOST_READ = 1 << 22
"""Characters of a text that this average is taken over."""

Kind = Literal["context", "author", "human", "source"]
"""`source`: length of the text that a compat study was cut from, without its words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is made of each text.

    Attributes:
        sizes: windows in tokens, the smallest first.
        reserved: tokens of a window that are not context: continuation, instruction, template.
        max_tokens: of the longest continuation.
        passages: points in a text.
        seed: of the points.
    """

    sizes: Sequence[int]
    reserved: int
    max_tokens: int
    passages: int
    seed: int

    @property
    def words(self) -> int:
        """Words of the author's passages."""
        return max(1, int(WORDS_A_TOKEN * self.max_tokens))

    def points(self, text: ReadText) -> tuple[Point, ...]:
        """Return the points of a text; raises like `choose_points`."""
        most = self.sizes[-1] - self.reserved
        return choose_points(text, self.passages, most, self.max_tokens, self.seed)


def passage_rows(plan: Plan, point: Point, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield the contexts of a point, the smallest first, and then the author's passage."""
    texts: list[tuple[Kind, int, str]] = [
        ("context", size, context_before(point, size - plan.reserved, tokenizer))
        for size in plan.sizes
    ]
    texts.append(("author", 0, author_after(point, plan.words)))
    for kind, size, text in texts:
        yield document_row(kind, point.text.name, point.name, size, text, tokenizer)


def human_rows(plan: Plan, text: ReadText, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """Yield passages of the author that overlap none which continuations are compared with."""
    for number, place in enumerate(human_places(plan, text)):
        passage = author_after(Point("", text, place), plan.words)
        yield document_row("human", text.name, f"{number:03d}", 0, passage, tokenizer)


def human_places(plan: Plan, text: ReadText) -> list[int]:
    """Return the characters where these passages begin.

    They begin at sentence ends, do not overlap, and are spread evenly over the text.
    """
    sample = text.text[:_MOST_READ]
    reach = int(_SPARE * plan.words * len(sample) / max(1, _words_of(sample)))
    taken = [point.at for point in plan.points(text)]
    free, free_from = [], 0
    for at in text.ends:
        if at >= free_from and at + reach <= len(text.text) and not _is_near(at, taken, reach):
            free.append(at)
            free_from = at + reach
    chosen = np.unique(np.linspace(0, len(free) - 1, min(MOST_HUMAN, len(free))).round())
    return [free[place] for place in chosen.astype(int)]


@lru_cache(maxsize=8)
def _words_of(text: str) -> int:
    return len(read_prose(text).words)


def _is_near(at: int, taken: Sequence[int], reach: int) -> bool:
    return any(abs(at - other) < reach for other in taken)


def require_noise_floor(counts: Mapping[str, int], words: int) -> None:
    """Raise StudyError where the texts hold too few human passages for the score.

    ``counts``: text -> its human passages, of so many ``words``.
    """
    short = [name for name, count in counts.items() if count < 4]
    if sum(counts.values()) < LEAST_HUMAN or short:
        raise StudyError(
            f"The texts hold {sum(counts.values())} further passages of {words} words"
            f"{f', and {short[0]!r} too few of them' if short else ''}; the score needs at least "
            f"{LEAST_HUMAN} in all and 4 of each text to know how far an author is from himself: "
            "give longer texts, or lower `continuation.passages` or `continuation.max_tokens`."
        )


def document_row(
    kind: Kind, source: str, passage: str, size: int, text: str, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Return a row of `CONTINUATION_DOCUMENTS`; ``size``: of the window, 0 without a context."""
    return {
        "document_id": document_id(text),
        "kind": kind,
        "source": source,
        "passage": passage,
        "context_tokens": size,
        "length_tokens": tokenizer.count(text),
        "text": text,
    }


def made_by(plan: Plan, text_sha256: str, fingerprint: str) -> str:
    """Return the SHA-256 (hex) of what decides a text's documents."""
    decides = [MAKING_VERSION, repr(plan), text_sha256, fingerprint]
    return hashlib.sha256("\0".join(decides).encode()).hexdigest()


LISTED = ("document_id", "kind", "source", "passage", "context_tokens", "length_tokens")
"""Columns of the documents that the list has, too: all that asking needs."""
HUMAN = "human"
"""Partition of the human passages, next to those of the points."""


def documents_dir(store: Store, study: str) -> Path:
    """Folder of the documents and of their list."""
    return store.study_dir(study) / "continuation_documents"


def part_file(store: Store, study: str, text: str, part: str) -> Path:
    """The file of a partition: ``part`` is `point_key` of a point, or `HUMAN`."""
    return documents_dir(store, study) / text / f"{part}.parquet"


def point_key(number: int) -> str:
    """Return a point's number as partition key; keys sort as points do.

    >>> point_key(7)
    'p007'
    """
    return f"p{number:03d}"


def write_part(path: Path, rows: Iterable[Mapping[str, Any]], made_by: str) -> None:
    """Write the documents of a partition, all or none.

    Raises:
        StoreError: the file cannot be written.
    """
    write_table(path, [{**row, "made_by": made_by} for row in rows], CONTINUATION_DOCUMENTS)


def read_part(path: Path, made_by: str | None = None) -> list[dict[str, Any]] | None:
    """Return the `LISTED` columns of a partition; None unless there is one made by this."""
    with suppress(StoreError):
        table = read_table(path, CONTINUATION_DOCUMENTS, {"made_by", *LISTED})
        rows: list[dict[str, Any]] = table.to_pylist()
        makers = {row.pop("made_by") for row in rows}
        if rows and (made_by is None or makers == {made_by}):
            return rows
    return None


def read_texts(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a partition with their texts.

    Raises:
        StoreError: the file cannot be read, or a text is not the one that was made.
    """
    rows: list[dict[str, Any]] = read_table(path, CONTINUATION_DOCUMENTS).to_pylist()
    for row in rows:
        if hashlib.sha256(row["text"].encode()).hexdigest() != row["document_id"]:
            raise StoreError(
                f"{path}: document {row['document_id'][:12]} is not the text that was made; delete "
                "the file and prepare the study again."
            )
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what to show of documents."""
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
    """A `SampleSource` over contexts (`LISTED`) in cells that one recipe asks.

    ``asked``: the instruction. ``file_of``: a context's id -> its file in the store.
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
        """Return a context's text.

        Raises:
            StoreError: the store does not have it.
        """
        if document_id not in self._file_of:
            raise StoreError(f"There is no context {document_id[:12]}; prepare the study again.")
        file = self._file_of[document_id]
        texts = _texts(file, file.stat().st_mtime_ns if file.exists() else 0)
        if document_id not in texts:
            raise StoreError(f"{file} was made anew; run the same command again.")
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
    """Documents of the experiment: a partition is a text, and a point or its human passages."""

    description = (
        "Of each text: a point's contexts at every size with what the author wrote after it (p000, "
        "p001, ...), and other passages of the author, which show how far human prose varies "
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
                f"Study {study.name!r} asks for no documents {text}, {part}; see `continuation` in "
                "its file."
            )
        rows = _ensure_part(study, store, keys["document"].index(text), part)
        ids = json.dumps([row["document_id"] for row in rows])
        return MadeDocuments(hashlib.sha256(ids.encode()).hexdigest(), summary(rows))

    def freeze(self, study: Study, store: Store) -> MadeDocuments:

        if self.frozen(study, store) is None:
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
            folder = documents_dir(store, study.name)
            sources = {name: list(one) for name, one in _digests(study, store).items()}
            write_list(folder, _spec_hash(study, store), rows, sources)
        made = self.frozen(study, store)
        assert made is not None
        return made

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        kept = _list(study, store)
        keys = self.keys(study)
        there = kept is not None and all(
            part_file(store, study.name, text, part).exists()
            for text in keys["document"]
            for part in keys["part"]
        )
        return MadeDocuments(kept.sha256, summary(kept.documents)) if kept and there else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        asked = section.model_dump(mode="json", include={"texts", "max_tokens", "passages", "seed"})
        plan = plan_of(study)
        return {
            **asked,
            "sizes": list(plan.sizes),
            "reserved": plan.reserved,
            "tokenizer": tokenizer_name(study, "continuation"),
            **({"compat": section.compat} if section.compat else {}),
        }

    def archived(self, study: Study, store: Store) -> KeptList | None:

        return archived(study, store, self.keys(study)) if self.frozen(study, store) else None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:

        return restore(study, store, kept, file)


DOCUMENTS = ContinuationDocuments()


def plan_of(study: Study) -> Plan:
    """Return what is made of each text.

    Raises:
        StudyError: the tokenizer cannot be opened, or the smallest window holds no context.
    """

    section = section_of(study)
    asked = tokenizer_of(study, "continuation").count(instruction_of(section))
    reserved = section.max_tokens + asked + TEMPLATE_TOKENS
    if section.sizes[0] - reserved < section.max_tokens // 2:
        raise StudyError(
            f"Study {study.name!r}: the smallest window, {section.sizes[0]:,} tokens, leaves "
            f"{max(0, section.sizes[0] - reserved):,} for the context, after "
            f"{section.max_tokens:,} for the continuation and {asked + TEMPLATE_TOKENS:,} for the "
            "instruction; raise "
            "`continuation.start_context` or lower `continuation.max_tokens`."
        )
    return Plan(section.sizes, reserved, section.max_tokens, section.passages, section.seed)


def listed(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return the documents of a study (`LISTED`), made where they are missing."""
    DOCUMENTS.freeze(study, store)
    kept = _list(study, store)
    assert kept is not None
    return kept.documents


def passages(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the author's and the human passages of a study with their texts, text by text.

    Raises:
        StudyError, StoreError: they cannot be made, kept or read.
    """
    DOCUMENTS.freeze(study, store)
    keys = DOCUMENTS.keys(study)
    for text in keys["document"]:
        for part in keys["part"]:
            for row in read_texts(part_file(store, study.name, text, part)):
                if row["kind"] != "context":
                    yield row


def require_texts(study: Study) -> None:
    """Return if the texts can be read and are long enough; nothing is made.

    Raises:
        StudyError: a text cannot be read, or is too short; all together are.
    """

    texts = [read_source(study, number) for number in range(len(section_of(study).texts))]
    if not section_of(study).compat:
        plan = plan_of(study)
        counts = {text.name: len(human_places(plan, text)) for text in texts}
        require_noise_floor(counts, plan.words)


def _list(study: Study, store: Store) -> DocumentList | None:
    """The list in the store where it is that of ``study``."""
    folder = documents_dir(store, study.name)
    # Where there is none at all, no text need be read to know that.
    return read_list(folder, _spec_hash(study, store)) if read_list(folder) else None


def _digests(study: Study, store: Store) -> dict[str, SourceDigests]:
    """The digests of the study's texts by name; of those that are gone, as the list has them."""
    known = read_list(documents_dir(store, study.name))
    kept = known.sources if known else {}
    names = section_of(study).text_names
    return {name: source_digests(study, number, kept) for number, name in enumerate(names)}


def _maker(study: Study, plan: Plan, text_sha256: str, fingerprint: str) -> str:

    compat = section_of(study).compat
    return made_by(plan, f"{text_sha256} {compat}" if compat else text_sha256, fingerprint)


def _spec_hash(study: Study, store: Store) -> str:
    plan, fingerprint = plan_of(study), tokenizer_of(study, "continuation").fingerprint
    digests = _digests(study, store).values()
    together = "".join(_maker(study, plan, one.text, fingerprint) for one in digests)
    return hashlib.sha256(together.encode()).hexdigest()


def _ensure_part(study: Study, store: Store, number: int, part: str) -> list[dict[str, Any]]:
    """The documents of a partition, made unless the store has them."""

    plan, tokenizer = plan_of(study), tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    digest = _digests(study, store)[name].text
    maker = _maker(study, plan, digest, tokenizer.fingerprint)
    path = part_file(store, study.name, name, part)
    kept = read_part(path, maker)
    if kept is None:
        text = read_source(study, number)
        if section_of(study).compat:
            rows = compat_rows(study, name)
        elif part == HUMAN:
            rows = human_rows(plan, text, tokenizer)
        else:
            point = plan.points(text)[int(part.removeprefix("p"))]
            rows = passage_rows(plan, point, tokenizer)
        write_part(path, rows, maker)
        kept = read_part(path, maker) or []
    return kept


_NUMBER = re.compile(r"\d{1,3}")


def archived(study: Study, store: Store, parts: Mapping[str, Any]) -> KeptList | None:
    """Return the documents in ``store``; None where there is no list with the texts' digests.

    ``parts``: the keys of both dimensions, in the order of the list.
    """
    kept = read_list(documents_dir(store, study.name))
    if kept is None or not kept.sources:
        return None
    rows = [
        row
        for text in parts["document"]
        for part in parts["part"]
        for row in read_texts(part_file(store, study.name, text, part))
    ]
    return KeptList(kept.made_by, kept.sources, rows)


def restore(study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
    """As `KeptDocuments.restore`; a list that the store has already stays as it is."""
    folder, names = documents_dir(store, study.name), section_of(study).text_names
    with malformed(file, KEPT_MEMBERS[0]):
        sources = {name: list(SourceDigests(*map(str, of))) for name, of in kept.sources.items()}
    by_part: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with malformed(file, KEPT_MEMBERS[1]):
        for row in kept.rows:
            by_part.setdefault((row["source"], _part(row)), []).append(dict(row))
    if {text for text, _ in by_part} != set(names) or set(sources) != set(names):
        raise damaged(file, "its documents are not those of its study's texts")
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
            f"{file} holds other documents of study {study.name!r} than {folder}; import it into a "
            "store of its own with --store DIR."
        )
    listed = [{name: row[name] for name in LISTED} for rows in by_part.values() for row in rows]

    def write() -> None:
        for (text, part), rows in by_part.items():
            write_part(part_file(store, study.name, text, part), rows, makers[text, part])
        write_list(folder, kept.made_by, listed, sources)

    return write


def _part(row: Mapping[str, Any]) -> str:
    """The partition of a document; raises ValueError where its passage is no number."""
    if row["kind"] == HUMAN:
        return HUMAN
    number = str(row["passage"]).rpartition("-")[2]
    if not _NUMBER.fullmatch(number):
        raise ValueError("passage")
    return point_key(int(number))


_TEMPLATE_TOKENS = 108
"""Left free of the largest window for a chat template, next to the reference's 20: a prompt that
might not fit is not sent."""


def slices_of(study: Study) -> Slices:
    """Cut the text of a compat study.

    Raises:
        StudyError: it cannot be read.
        DataError: it is empty.
    """
    section = section_of(study)
    text = read_source(study, 0)
    most, length = section.max_context, section.max_tokens
    tokenizer_of(study, "continuation")  # refused without leave
    return _cut(
        text.text, tokenizer_name(study, "continuation"), most, length, instruction_of(section)
    )


def compat_rows(study: Study, name: str) -> Iterator[dict[str, Any]]:
    """Yield the contexts of ``study``, the smallest first, what the author wrote after them, and
    the length of the text.

    The first size that the text does not reach, and all larger ones, have none.

    Raises:
        StudyError: the text reaches no size at all.
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
    counts = opened_tokenizer(tokenizer)
    return sliced(source_text(text), counts, max_context, max_tokens, instruction)
