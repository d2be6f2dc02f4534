"""The recorded results of a study as one flat file, for other programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.calls import arrow_schema
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.inference.ledger.schema import columns
from contextcliff_dagster.store import atomic_path

if TYPE_CHECKING:
    from contextcliff_dagster.inference.ledger.backend import Database
    from contextcliff_dagster.inference.ledger.ledger import Ledger

_AT_ONCE = 2_000
_OF_CALL = [name for name in columns("calls") if name != "created_at"]
_OF_RESULT = [
    name for name in columns("results") if name not in ("call_key", "checksum", "pruned_at")
]
_JSON = ("parts", "extra")
_MAYBE_PAID = "maybe_paid"
FORMATS = (".jsonl", ".parquet")


def export_results(ledger: Ledger, study: str, campaign: str | None, file: Path) -> int:
    """Write every ended call of the study to ``file``, a row each; their number.

    JSONL or Parquet, by the file's suffix. Rows are in the order of ``call_key``; the same ledger
    gives the same rows. A call that a run gave up has ``no_answer`` ``transport_error``;
    ``maybe_paid`` counts the requests of a call that died after they were sent, without the one
    that was answered. ``parts`` and ``extra`` are objects in JSONL, JSON text in Parquet. Documents
    are named by their hash; there is no key or address in a ledger, so none in the file.

    Raises:
        StudyError: nothing of the study (or campaign) is recorded.
        StoreError: another suffix, the ledger cannot be read, or the file not written.
    """
    if file.suffix not in FORMATS:
        raise StoreError(f"{file} should end in {' or '.join(FORMATS)}: that chooses the format.")
    write = _write_jsonl if file.suffix == ".jsonl" else _write_parquet
    lost = Counter(orphan.call_key for orphan in ledger.orphans())
    with ledger.snapshot() as db:
        _require_study(db, study, campaign)
        with atomic_path(file) as temporary:
            return write(temporary, _rows(db, study, campaign, lost))


def _require_study(db: Database, study: str, campaign: str | None) -> None:
    rows = db.execute(
        "SELECT campaign FROM campaigns WHERE study = ? ORDER BY created_at", (study,)
    ).fetchall()
    there = [row[0] for row in rows]
    if not there:
        raise StudyError(f"The ledger has no study {study!r}; see `contextcliff campaign list`.")
    if campaign is not None and campaign not in there:
        raise StudyError(
            f"Study {study!r} has no campaign {campaign!r} in the ledger; "
            f"it has {', '.join(there)}."
        )


def _rows(
    db: Database, study: str, campaign: str | None, lost: Mapping[str, int]
) -> Iterator[list[dict[str, Any]]]:
    """Some rows at a time, so that the whole study need not fit into memory."""
    calls = ", ".join(f"c.{name}" for name in _OF_CALL)
    results = ", ".join(f"r.{name}" for name in _OF_RESULT)
    # The last attempt's failure counts, and only where there is no result.
    sql = (
        f"SELECT {calls}, {results}, (SELECT count(*) FROM failures d WHERE d.call_key = c.call_key"
        " AND d.maybe_paid = 1), f.kind, f.message, f.at FROM calls c"
        " LEFT JOIN results r ON r.call_key = c.call_key"
        " LEFT JOIN failures f ON r.call_key IS NULL AND f.attempt_id ="
        " (SELECT max(g.attempt_id) FROM failures g WHERE g.call_key = c.call_key)"
        " WHERE c.study = ? AND c.call_key > ? AND (r.call_key IS NOT NULL OR f.final = 1)"
        + (" AND c.campaign = ?" if campaign is not None else "")
        + f" ORDER BY c.call_key LIMIT {_AT_ONCE}"
    )
    last = ""
    while True:
        given = (study, last) if campaign is None else (study, last, campaign)
        rows = db.execute(sql, given).fetchall()
        if rows:
            yield [_row(values, lost) for values in rows]
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1][_OF_CALL.index("call_key")]


def _row(values: tuple[Any, ...], lost: Mapping[str, int]) -> dict[str, Any]:
    *known, died, kind, message, at = values
    row = dict(zip([*_OF_CALL, *_OF_RESULT], known, strict=True))
    row[_MAYBE_PAID] = died + lost.get(row["call_key"], 0)
    if kind is not None:
        row |= {"no_answer": "transport_error", "error": f"{kind}: {message}", "finished_at": at}
    return row


def _write_jsonl(path: Path, rows: Iterator[list[dict[str, Any]]]) -> int:
    number = 0
    with path.open("w", encoding="utf-8") as file:
        for row in chain.from_iterable(rows):
            nested = {name: json.loads(row[name]) for name in _JSON if row[name]}
            file.write(json.dumps(row | nested, ensure_ascii=False) + "\n")
            number += 1
    return number


def _write_parquet(path: Path, rows: Iterator[list[dict[str, Any]]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {field.name: field for table in ("calls", "results") for field in arrow_schema(table)}
    named = [kinds[name] for name in [*_OF_CALL, *_OF_RESULT]]
    schema, number = pa.schema([*named, (_MAYBE_PAID, pa.int64())]), 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for some in rows:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
            number += len(some)
    return number
