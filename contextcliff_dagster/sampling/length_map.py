"""The length map: exact token counts of every example's document, each document counted once."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import LENGTH_MAP, CorpusError, StoreError
from contextcliff_dagster.freed_memory import lean_arrow
from contextcliff_dagster.sampling.tokenizers.tokenizers import CheckedCounter, Tokenizer
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.store import atomic_path, read_table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from contextcliff_dagster.contracts.arrays import Ints


@dataclass(frozen=True, slots=True)
class LengthMapSummary:
    """Totals of a length map. ``tokens`` and the extremes cover distinct documents; ``counted_by``
    is the library or server that counted, if known."""

    tokenizer: str
    tokenizer_fingerprint: str
    documents: int
    examples: int
    tokens: int
    min_tokens: int
    max_tokens: int
    counted_by: str = ""


@lean_arrow()
def build_length_map(corpus_dir: Path, tokenizer: Tokenizer, out_path: Path) -> LengthMapSummary:
    """Count the tokens of every document in a materialized corpus; write table ``length_map``.

    Rows are in the order of the corpus's examples. Texts are read in row groups of a few MB, at 40
    bytes of memory a document. Several processes may build one map, as the file appears whole.

    Raises:
        CorpusError: an example's document is not among the documents, or there is no example.
        StoreError: the corpus is missing or damaged, or the map cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids, counts = _count_documents(corpus_dir / "documents.parquet", tokenizer)
    if not len(ids):
        raise CorpusError(f"The corpus in {corpus_dir} has no document to count.")
    schema = LENGTH_MAP.arrow_schema()
    examples = 0
    with _opened(corpus_dir / "examples.parquet") as source, atomic_path(out_path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            columns = ["example_id", "document_id"]
            for batch in source.iter_batches(batch_size=8_192, columns=columns, use_threads=False):
                lengths = _look_up(batch.column("document_id"), ids, counts, corpus_dir)
                table = pa.table([*batch.columns, pa.array(lengths)], schema=schema)
                writer.write_table(table)
                examples += batch.num_rows
        if not examples:
            raise CorpusError(f"The corpus in {corpus_dir} has no example.")
    return LengthMapSummary(
        tokenizer.name,
        tokenizer.fingerprint,
        documents=len(ids),
        examples=examples,
        tokens=int(counts.sum()),
        min_tokens=int(counts.min()),
        max_tokens=int(counts.max()),
        counted_by=str(getattr(tokenizer, "counted_by", "")),
    )


def read_length_map(path: Path, min_tokens: int = 0) -> pa.Table:
    """Read table ``length_map``, omitting documents shorter than ``min_tokens``.

    Raises:
        CorpusError: no document is that long.
        StoreError: the file is missing or damaged.
    """
    import pyarrow.compute as pc

    table = read_table(path, LENGTH_MAP)
    if not min_tokens:
        return table
    rows = table.filter(pc.greater_equal(table["length_tokens"], min_tokens))
    if table.num_rows and not rows.num_rows:
        longest = pc.max(table["length_tokens"]).as_py()
        raise CorpusError(
            f"No document reaches sampling.min_tokens ({min_tokens}); the longest has {longest} "
            "tokens. Lower sampling.min_tokens."
        )
    return rows


def binned_columns(length_map: pa.Table) -> tuple[Ints, Ints]:
    """Return each example's length and its document's number, as `sampling.bins` needs them."""
    documents = length_map["document_id"].combine_chunks().dictionary_encode()
    return length_map["length_tokens"].to_numpy(), documents.indices.to_numpy(zero_copy_only=False)


def _count_documents(path: Path, tokenizer: Tokenizer) -> tuple[NDArray[np.bytes_], Ints]:
    """Return the sorted document digests (32 bytes each) and their token counts."""
    import numpy as np

    digests = bytearray()
    counts = array("q")
    checked = tokenizer if isinstance(tokenizer, CheckedCounter) else None
    later: dict[int, list[tuple[int, int]]] = {}
    with _opened(path) as file:
        groups = range(file.num_row_groups)
        if checked is not None:
            checked.expect(sum(file.metadata.row_group(at).total_byte_size for at in groups))
        for group in groups:
            ids, texts = _text_group(file, group)
            digests += b"".join(bytes.fromhex(digest) for digest in ids)
            if checked is not None:
                odd = [row for row, text in enumerate(texts) if checked.by_reference(text)]
                if odd:
                    later[group] = [(len(counts) + row, row) for row in odd]
                    texts = ["" if row in odd else text for row, text in enumerate(texts)]
            counts.extend(tokenizer.count_many(texts))
            report_step("counting tokens of documents", len(counts), file.metadata.num_rows)
        if checked is not None:
            # At the end, when the fast library may go: both vocabularies are too much memory.
            for group, places in later.items():
                _, texts = _text_group(file, group)
                tokens = checked.refer([texts[row] for _, row in places])
                for (place, _), count in zip(places, tokens, strict=True):
                    counts[place] = count
            # The examples take their own room. The vocabulary that counted a small corpus will
            # count next what requests add to its documents.
            checked.rest(but_reference=True)
    ids_array = np.frombuffer(digests, dtype="S32")
    order = np.argsort(ids_array)
    return ids_array[order], np.frombuffer(counts, dtype=np.int64)[order]


def _text_group(file: pq.ParquetFile, group: int) -> tuple[list[str], list[str]]:
    """Read the ids and texts in a row group: a few MB of text, or a single longer document."""
    table = file.read_row_group(group, columns=["document_id", "text"], use_threads=False)
    return table["document_id"].to_pylist(), table["text"].to_pylist()


def _look_up(
    document_ids: pa.Array, ids: NDArray[np.bytes_], counts: Ints, corpus_dir: Path
) -> Ints:
    import numpy as np

    wanted = np.frombuffer(
        b"".join(bytes.fromhex(digest) for digest in document_ids.to_pylist()), dtype="S32"
    )
    places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    if missing := np.flatnonzero(ids[places] != wanted).tolist():
        name = document_ids[missing[0]].as_py()
        raise CorpusError(
            f"The corpus in {corpus_dir} lacks document {name[:12]} that an example asks about; "
            "materialize it again."
        )
    return counts[places]


def _opened(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except FileNotFoundError as error:
        raise StoreError(f"There is no corpus at {path}; materialize it first.") from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} is damaged ({error}); materialize the corpus again.") from error
