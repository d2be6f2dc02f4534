"""File formats as streams of (place, row): JSON Lines, JSON, CSV, TSV and Parquet.

Every reader holds one row (or one small batch) at a time, whatever the file's size.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.readers.json_stream import DECODER, JsonStream
from contextcliff_dagster.corpora.readers.text_lines import text_lines
from contextcliff_dagster.user_files import require_file

LONGEST_FIELD = 2**31 - 1
"""The csv module's own limit is global, and lower: a field may be a whole book."""
Rows = Iterator[tuple[str, Any]]
"""(place, row): ``qa.jsonl, line 7`` and its fields."""


def json_lines(path: Path) -> Rows:
    """One JSON object a line; blank lines are skipped."""
    for number, line in text_lines(path):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            yield place, DECODER.decode(line.strip())
        except JSONDecodeError as error:
            raise CorpusError(
                f"{place} is not one JSON object: {error.msg} at column {error.colno}."
            ) from error
        except ValueError as error:
            raise CorpusError(f"{place}: {error}.") from error
        except RecursionError as error:
            raise CorpusError(f"{place} is nested too deeply to be an example.") from error


def delimited(path: Path, delimiter: str = ",") -> Rows:
    """Lines with a header, RFC 4180 quoting, parted by ``delimiter``."""
    csv.field_size_limit(LONGEST_FIELD)
    numbered = text_lines(path)
    reader = csv.reader((text for _, text in numbered), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    start = 1
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {start}: {error}.") from error
        if fields is None:
            return
        place = f"{path}, line {start}"
        start = reader.line_num + 1
        if not any(fields):
            continue
        if header is None:
            header = [name.strip() for name in fields]
            counts = Counter(filter(None, header))
            if twice := next((name for name in header if counts[name] > 1), None):
                raise CorpusError(f"{place}: the header names column {twice!r} twice.")
            continue
        if len(fields) != len(header):
            raise CorpusError(
                f"{place} has {len(fields)} fields, the header has {len(header)}; "
                "quote fields that contain the delimiter or a line break."
            )
        yield place, dict(zip(header, fields, strict=True))


def parquet(path: Path) -> Rows:
    """Rows of a Parquet file, a small batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        require_file(path)
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
                raise CorpusError(f"{path} names a column twice.")
            for batch in file.iter_batches(batch_size=32, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}, after row {number}: a text column is not UTF-8.") from error
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0]
        raise CorpusError(
            f"{path} is not readable Parquet (after row {number}): {message}"
        ) from error


READERS: dict[str, Callable[[Path], Rows]] = {
    "jsonl": json_lines,
    "json": lambda path: JsonStream(path).values(),
    "csv": delimited,
    "tsv": partial(delimited, delimiter="\t"),
    "parquet": parquet,
}
ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
"""How files of a format are called."""
