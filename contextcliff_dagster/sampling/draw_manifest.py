"""Draw a manifest from a materialized corpus: the sample, with its questions, texts and controls.

Controls ask the same questions without their document, or with its evidence alone:

- ``no_context``: the prompt has an empty text where the document would be. Whatever the model then
  answers, it knew or guessed.
- ``oracle``: the document is only its pieces of evidence, in order, separated by blank lines. It
  needs questions that state where their evidence is: in characters of the document
  (`EVIDENCE_SPANS`), or as texts that occur in it (a field ``evidence`` of a user's own file).

A control is an ordinary call on another document with the study's recipe, engine, ledger and
budget. Its key differs from every measured call's, unless a document consists of that text alone.

The sample is stratified by bin, nested, balanced over documents, and drawn from a seed alone. A
document's place in its bin's order is ``SHA-256(seed, document id)``, a question's within its
document ``SHA-256(seed, example id)``. A bin is drawn in rounds: one question of each document, in
document order, then a second of each, up to ``questions_per_document``. So the order depends on
nothing but the seed and the ids, not on the source's order or the sample's size: n = 20 begins with
the n = 5 sample. In every prefix, no document is more than one question ahead of another that has
questions left.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    CorpusError,
    LengthBin,
    StoreError,
    validate,
)
from contextcliff_dagster.contracts.arrays import Floats, Ints
from contextcliff_dagster.corpora.corpus import EVIDENCE_CHARACTERS, EVIDENCE_SPANS, seeded_place
from contextcliff_dagster.freed_memory import lean_arrow, return_freed_memory
from contextcliff_dagster.sampling.bins import active_bins, assign_bin
from contextcliff_dagster.sampling.length_map import read_length_map
from contextcliff_dagster.sampling.manifest import Manifest, PlannedExample, SampleSource
from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    import pyarrow as pa

Control = Literal["no_context", "oracle"]
CONTROLS: tuple[Control, ...] = ("no_context", "oracle")

BETWEEN = "\n\n"
"""Separator between pieces of evidence."""


class ControlSource:
    """A `SampleSource` whose documents are replaced by the control's texts."""

    def __init__(self, source: SampleSource, control: Control) -> None:
        self._source, self.control = source, control
        self._texts: dict[str, str] = {}
        self._document = lru_cache(maxsize=2)(source.document_text)  # neighbours share theirs

    def planned(self, bin: str, n: int) -> list[PlannedExample]:
        """Return the bin's first ``n`` examples that can be asked, with the lengths of their texts;
        the oracle's lengths are estimated from their fraction of the document's characters."""
        planned: list[PlannedExample] = []
        for sample in self._source.planned(bin, n):
            text, tokens = "", 0
            if self.control == "oracle":
                metadata = sample.example.metadata
                if EVIDENCE_SPANS not in metadata and "evidence" not in metadata:
                    continue
                document = self._document(sample.example.document_id)
                if not (pieces := evidence_of(metadata, document)):
                    continue
                text = BETWEEN.join(pieces)
                share = len(text) / max(len(document), 1)
                tokens = math.ceil(sample.length_tokens * share) + len(pieces)
            document_id = hashlib.sha256(text.encode()).hexdigest()
            self._texts[document_id] = text
            example = replace(sample.example, document_id=document_id)
            planned.append(PlannedExample(example, tokens, sample.bin, sample.rank))
        return planned

    def document_text(self, document_id: str) -> str:
        """Return the control's text for an example that :meth:`planned` returned."""
        return self._texts[document_id]


def evidence_of(metadata: Mapping[str, Any], document: str) -> list[str]:
    """Return the pieces of evidence in text order; empty if any piece's position is unknown.

    Pieces that overlap or touch are joined.
    """
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans_of(metadata, document)):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return [document[start:end] for start, end in merged]


def spans_of(metadata: Mapping[str, Any], document: str) -> list[tuple[int, int]]:
    """Return start and end, in characters, of each piece of evidence that ``metadata`` gives."""
    return _spans(metadata.get(EVIDENCE_SPANS), document) or _evidence_places(
        metadata.get("evidence"), document
    )


def _spans(given: Any, document: str) -> list[tuple[int, int]]:
    # In a user's own file, fields of that name may hold anything.
    spans = []
    for pair in given if isinstance(given, list | tuple) else ():
        match pair:
            case [bool(), _] | [_, bool()]:
                return []
            case [int(start), int(end)] if 0 <= start < end <= len(document):
                spans.append((start, end))
            case _:
                return []
    return spans


def _evidence_places(given: Any, document: str) -> list[tuple[int, int]]:
    """Return where the texts first occur in the document; empty if one of them does not occur."""
    texts: Sequence[Any] = [given] if isinstance(given, str) else given or ()
    if not isinstance(texts, list | tuple):
        return []
    spans = []
    for text in texts:
        start = document.find(text) if isinstance(text, str) and text.strip() else -1
        if start < 0:
            return []
        spans.append((start, start + len(text)))
    return spans


_NAMES_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """How much to draw. ``questions_per_document`` is a maximum: new documents come first."""

    samples_per_bin: int = 20
    seed: int = 0
    questions_per_document: int = 1
    min_tokens: int = 0


def draw_sample(length_map: pa.Table, bins: Sequence[LengthBin], spec: SampleSpec) -> pa.Table:
    """Draw ``spec.samples_per_bin`` examples from each active bin, in order of (bin, rank).

    A bin with fewer examples contributes all of them. Returns the columns of ``length_map``,
    ``bin`` (key) and ``rank`` (0, 1, ... in each bin).

    Raises:
        CorpusError: a document of at least ``spec.min_tokens`` lies outside the bins, or no
            document is that long.
    """
    import pyarrow as pa

    lengths: Ints = length_map["length_tokens"].to_numpy()
    rows = np.flatnonzero(lengths >= spec.min_tokens)
    if not len(rows):
        raise CorpusError(
            f"No document has at least {spec.min_tokens} tokens; lower sampling.min_tokens."
        )
    of_bin = _bins_of(lengths[rows], bins)
    named = length_map["document_id"].take(rows).combine_chunks().dictionary_encode()
    count = len(named.dictionary)
    # A group is a document's questions in a bin; `turn` is the document's place within the bin.
    group = of_bin * count + named.indices.to_numpy(zero_copy_only=False)
    groups, of_row = np.unique(group, return_inverse=True)
    first, second = _places(spec.seed, "document", named.dictionary)
    turn = _numbered(groups // count, first[groups % count], second[groups % count])[of_row]

    # Documents beyond the sample's size are never reached, in any round.
    near = turn < spec.samples_per_bin
    rows, of_bin, group, turn = rows[near], of_bin[near], group[near], turn[near]
    first, second = _places(spec.seed, "example", length_map["example_id"].take(rows))
    round_of = _numbered(group, first, second)
    asked = round_of < spec.questions_per_document
    rows, of_bin = rows[asked], of_bin[asked]
    rank = _numbered(of_bin, round_of[asked], turn[asked])
    drawn = np.flatnonzero(rank < spec.samples_per_bin)
    drawn = drawn[np.lexsort((rank[drawn], of_bin[drawn]))]
    keys = pa.array([b.bin for b in active_bins(bins)], pa.string())
    sample = length_map.take(rows[drawn]).append_column("bin", keys.take(of_bin[drawn]))
    return sample.append_column("rank", pa.array(rank[drawn]))


def _bins_of(lengths: Ints, bins: Sequence[LengthBin]) -> Ints:
    """Return, for each length, the number of the active bin that contains it."""
    active = active_bins(bins)
    for length in (int(lengths.min()), int(lengths.max())):
        assign_bin(length, bins)  # raises where it lies outside
    return np.searchsorted([b.edge_low for b in active], lengths, side="right") - 1


def _places(seed: int, kind: str, names: pa.Array | pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Return the names' seeded sort keys: the first 16 bytes of each hash, as two numbers."""
    digests = bytearray()
    for start in range(0, len(names), _NAMES_AT_ONCE):
        for name in names.slice(start, _NAMES_AT_ONCE).to_pylist():
            digests += seeded_place(seed, kind, name)[:16]
    numbers = np.frombuffer(digests, ">u8").reshape(-1, 2)
    return numbers[:, 0].astype(np.uint64), numbers[:, 1].astype(np.uint64)


def _numbered(within: Ints, *by: Ints) -> Ints:
    """Number the items within each group of equal ``within``, in the order of ``by``."""
    order = np.lexsort((*reversed(by), within))
    grouped = within[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]])
    numbers = np.empty(len(within), np.int64)
    numbers[order] = np.arange(len(within)) - np.repeat(
        starts, np.diff(np.append(starts, len(within)))
    )
    return numbers


Item = TypeVar("Item")
Locate = Callable[[str, Sequence[Sequence[str]]], Sequence[float | None]]
"""Maps a text and the accepted answers to each question about it to the evidence positions."""
_BLOCK = 16
"""Number of texts held in memory at a time."""
_ROWS_AT_ONCE = 10_000
_PIECE_BYTES = 1 << 26
_PLACE = ("length_tokens", "bin", "rank")


@lean_arrow()
def draw_manifest(
    corpus_dir: Path,
    length_map: Path,
    bins: Sequence[LengthBin],
    spec: SampleSpec,
    header: Mapping[str, Any],
    tokenizer: Callable[[], Tokenizer] | None = None,
    locate: Locate | None = None,
) -> Manifest:
    """Draw the sample and collect its questions and texts from a materialized corpus.

    ``length_map``: the file; its rows are freed as soon as the sample is drawn. ``header`` should
    name study, tokenizer and corpus fingerprint; the sample's spec is added as ``sample``.
    ``tokenizer`` opens the study's tokenizer, to convert distances between pieces of evidence from
    characters. ``locate`` finds the evidence for questions that do not state its position; without
    it, their position stays unknown.

    Raises:
        CorpusError: see :func:`draw_sample`.
        StoreError: the corpus is missing, damaged, or not the one of the length map.
    """
    return_freed_memory()
    sample = draw_sample(read_length_map(length_map, spec.min_tokens), bins, spec)
    examples = _rows_of(corpus_dir / "examples.parquet", "example_id", sample["example_id"])
    for name in _PLACE:
        examples = examples.append_column(name, sample[name])
    document_ids = sorted(sample["document_id"].unique().to_pylist())
    del sample
    examples = validate(examples, MANIFEST_EXAMPLES, str(corpus_dir))
    return_freed_memory()
    texts = _documents_of(corpus_dir / "documents.parquet", document_ids)
    if tokenizer is not None:
        examples = count_distances(examples, texts, tokenizer)
    if locate is not None:
        examples = locate_evidence(examples, texts, locate)
    return Manifest(
        header={**header, "sample": asdict(spec)},
        bins=tuple(bins),
        examples=examples,
        read_documents=lambda: texts,
    )


def count_distances(
    examples: pa.Table, documents: pa.Table, tokenizer: Callable[[], Tokenizer]
) -> pa.Table:
    """Return the examples with ``inter_evidence_tokens`` filled in, if their metadata state where
    the pieces of evidence begin.

    These are the text's tokens from the start of the first piece to the start of the last. A number
    from the corpus itself is kept. ``tokenizer`` is called only if there is anything to count.
    """
    import pyarrow.compute as pc

    has_places = pc.fill_null(pc.match_substring(examples["metadata"], EVIDENCE_CHARACTERS), False)
    missing = pc.and_(pc.is_null(examples["inter_evidence_tokens"]), has_places)
    distances = _numbers_in(examples["inter_evidence_tokens"])
    opened: Tokenizer | None = None
    for block in _in_blocks(_grouped(examples, documents, missing)):
        spans = [
            (row["number"], text[slice(*span)])
            for text, rows in block
            for row in rows
            if (span := _span(row)) is not None
        ]
        if spans:
            opened = opened or tokenizer()
            counts = opened.count_many([between for _, between in spans])
            for (number, _), count in zip(spans, counts, strict=True):
                distances[number] = count
    return _with_column(examples, "inter_evidence_tokens", distances)


def locate_evidence(examples: pa.Table, documents: pa.Table, locate: Locate) -> pa.Table:
    """Return the examples with unknown ``evidence_position`` filled in: the start of their first
    stated piece of evidence or, if none is stated, the result of ``locate``."""
    unknown = examples["evidence_position"].is_null()
    positions = _numbers_in(examples["evidence_position"])
    for number, (text, rows) in enumerate(_grouped(examples, documents, unknown), 1):
        for row, position in zip(rows, _located(text, rows, locate), strict=True):
            positions[row["number"]] = math.nan if position is None else position
        report_step("finding answers in documents", number, documents.num_rows)
    return _with_column(examples, "evidence_position", positions)


def _located(
    text: str, rows: Sequence[Mapping[str, Any]], locate: Locate
) -> Iterator[float | None]:
    spans = [spans_of(json.loads(row["metadata"] or "{}"), text) for row in rows]
    answers = [row["answers"] for row, given in zip(rows, spans, strict=True) if not given]
    places = iter(locate(text, answers))
    return (min(given)[0] / len(text) if given else next(places) for given in spans)


def _grouped(
    examples: pa.Table, documents: pa.Table, wanted: pa.ChunkedArray
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each document's text with those of its examples that are ``wanted``, numbered."""
    import pyarrow.compute as pc

    numbers = np.flatnonzero(wanted.to_numpy())
    # Over all examples: selecting the wanted ids would copy them.
    of_all = pc.index_in(examples["document_id"], documents["document_id"].combine_chunks())
    owners = of_all.to_numpy()[numbers]
    order = np.argsort(owners, kind="stable")
    numbers, owners = numbers[order], owners[order]
    texts = documents["text"]
    rows = _rows_at(examples.select(["metadata", "answers"]), numbers, owners)
    for owner, group in groupby(rows, lambda row: row["owner"]):
        yield texts[owner].as_py(), list(group)


def _rows_at(examples: pa.Table, numbers: Ints, owners: Ints) -> Iterator[dict[str, Any]]:
    for first in range(0, len(numbers), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        rows = examples.take(numbers[some]).to_pylist()
        pairs = zip(numbers[some].tolist(), owners[some].tolist(), strict=True)
        for row, (number, owner) in zip(rows, pairs, strict=True):
            yield {**row, "number": number, "owner": owner}


def _in_blocks(items: Iterator[Item]) -> Iterator[list[Item]]:
    while block := list(islice(items, _BLOCK)):
        yield block


def _numbers_in(column: pa.ChunkedArray) -> Floats:
    """Return the values of a column as a writable array, with NaN for nulls."""
    values: Floats = column.cast("float64").to_numpy(zero_copy_only=False)
    return values.copy()


def _with_column(examples: pa.Table, name: str, values: Floats) -> pa.Table:
    import pyarrow as pa

    field = examples.schema.field(name)
    column = pa.array(values, from_pandas=True).cast(field.type)
    return examples.set_column(examples.column_names.index(name), field, column)


def _span(row: Mapping[str, Any]) -> tuple[int, int] | None:
    places = json.loads(row["metadata"]).get(EVIDENCE_CHARACTERS)
    # In a user's own file, a field of that name may hold anything.
    usable = isinstance(places, list) and all(type(place) is int and place >= 0 for place in places)
    return (min(places), max(places)) if usable and len(places) > 1 else None


def _rows_of(path: Path, key: str, wanted: pa.ChunkedArray) -> pa.Table:
    """Read the rows of a Parquet file whose keys are ``wanted``, in the order of ``wanted``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(_row_groups_of(path, key, wanted))
    order = pc.index_in(wanted, value_set=rows[key].combine_chunks())
    if order.null_count:
        raise _lacking(path, key, wanted.filter(pc.is_null(order))[0].as_py())
    schema, columns = rows.schema, []
    for name in schema.names:
        # A column at a time, to avoid a second copy of the whole table.
        columns.append(rows[name].take(order))
        rows = rows.drop_columns([name])
    return pa.table(columns, schema=schema)


def _documents_of(path: Path, wanted: Sequence[str]) -> pa.Table:
    """Read the rows of table ``documents`` with these ids, in the order given.

    Filtering, joining and sorting in Arrow needs three copies of the texts. This needs one: it
    reads the file twice, the first time for the sizes of the texts.
    """
    import pyarrow as pa

    place = {name: at for at, name in enumerate(wanted)}
    names = pa.array(wanted, pa.string())
    sizes = np.full(len(wanted), -1)
    for at, text in _placed(path, names, place):
        sizes[at] = len(text)
    if missing := np.flatnonzero(sizes < 0).tolist():
        raise _lacking(path, "document_id", wanted[missing[0]])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    data, written = bytearray(int(starts[-1])), np.zeros(len(wanted), bool)
    for at, text in _placed(path, names, place):
        if len(text) != sizes[at]:
            break
        data[starts[at] : starts[at + 1]] = text
        written[at] = True
    if not written.all():
        raise StoreError(f"{path} changed while it was read; run the same command again.")
    pieces, first = [DOCUMENTS.arrow_schema().empty_table()], 0
    while first < len(wanted):
        # Arrow's 32-bit offsets limit the bytes of a piece.
        end = int(np.searchsorted(starts, starts[first] + _PIECE_BYTES, side="right")) - 1
        last = max(first + 1, end)
        offsets = (starts[first : last + 1] - starts[first]).astype(np.int32)
        of_piece = pa.py_buffer(data).slice(int(starts[first]), int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), of_piece]
        text = pa.Array.from_buffers(pa.string(), last - first, buffers)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _damaged(path, error) from error
        pieces.append(pa.table([wanted[first:last], text], schema=DOCUMENTS.arrow_schema()))
        first = last
    return pa.concat_tables(pieces)


def _placed(path: Path, names: pa.Array, place: Mapping[str, int]) -> Iterator[tuple[int, bytes]]:
    """Yield each wanted text with its number, in file order."""
    for rows in _row_groups_of(path, "document_id", names):
        group = validate(rows, DOCUMENTS, str(path.parent))
        # As bytes: a text in a Python string takes up to four times as much.
        texts = group["text"].cast("binary")
        for name, text in zip(group["document_id"].to_pylist(), texts, strict=True):
            if text.is_valid:
                yield place[name], text.as_py()


def _row_groups_of(path: Path, key: str, names: pa.Array | pa.ChunkedArray) -> Iterator[pa.Table]:
    """Yield, for each row group of a Parquet file, the rows whose key is wanted, in file order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield file.schema_arrow.empty_table()
            # All at once: each look-up builds a hash table of all names, for hundreds of groups.
            keys = file.read(columns=[key], use_threads=False)[key]
            wanted = pc.is_in(keys, value_set=names)
            del keys
            first = 0
            for group in range(file.num_row_groups):
                mask = wanted.slice(first, file.metadata.row_group(group).num_rows)
                first += len(mask)
                if pc.any(mask).as_py():
                    yield file.read_row_group(group, use_threads=False).filter(mask)
    except FileNotFoundError as error:
        raise StoreError(f"There is no corpus at {path}; materialize it first.") from error
    except (PermissionError, MemoryError) as error:  # ArrowMemoryError is a MemoryError
        raise StoreError(f"{path} cannot be read ({error}); correct that and go on.") from error
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} is damaged ({error}); materialize the corpus again.")


def _lacking(path: Path, key: str, name: str) -> StoreError:
    return StoreError(
        f"{path} lacks {key} {name[:40]!r} of the length map; materialize corpus and length map "
        "again."
    )
