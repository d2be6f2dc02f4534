"""Companions of the calls: results as one flat file, and documents that no source holds."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.archive import container
from contextcliff_dagster.archive.calls import arrow_schema
from contextcliff_dagster.archive.container import json_object, malformed
from contextcliff_dagster.contracts import ANSWERS, StoreError, StudyError
from contextcliff_dagster.inference.ledger.schema import ANSWERED, COLUMNS, columns, either, joined
from contextcliff_dagster.store import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.archive.container import Allowance
    from contextcliff_dagster.inference.ledger.backend import Database
    from contextcliff_dagster.inference.ledger.ledger import Ledger

_AT_ONCE = 2_000
_MOST_CHARS = 16_000_000
_OF_CALL = [name for name in columns("calls") if name != "created_at"]
_OF_RESULT = (*COLUMNS, "origin")
_PROMPT = "prompt"
_JSON = ("parts", "extra")
_MAYBE_PAID = "maybe_paid"
FORMATS = (".jsonl", ".parquet")

JUDGED = (
    *("accepted", "score", "em", "f1", "contained", "failure", "parsed_answer"),
    *("task", "length_tokens", "bin", "evidence_position"),
)
"""Columns of `contracts.ANSWERS` that sample and records of a study know, not the ledger."""

Judge = Callable[[list[dict[str, Any]]], None]
"""Fills in `JUDGED` of some rows."""


class Exported(NamedTuple):
    """Rows of an export, and how many of them have columns that the ledger alone lacks."""

    rows: int = 0
    prompts: int = 0
    scores: int = 0
    accepted: int = 0

    def plus(self, rows: list[dict[str, Any]]) -> Exported:
        """Return the numbers with some more rows."""
        known = (
            sum(row[name] is not None for row in rows) for name in (_PROMPT, "score", "accepted")
        )
        return Exported(*map(add, self, (len(rows), *known)))


def export_results(
    ledger: Ledger,
    study: str,
    campaign: str | None,
    file: Path,
    *,
    judge: Judge | None = None,
    prompts: bool = True,
) -> Exported:
    """Write every ended call of the study to ``file``, a row each.

    JSONL or Parquet, by the file's suffix. Rows are in the order of ``call_key``; the same ledger
    gives the same rows. A call that a run gave up has ``no_answer`` ``transport_error``;
    ``maybe_paid`` counts the requests of a call that died after they were sent, without the one
    that was answered. ``prompt`` is what was sent, rebuilt from the ledger's own documents: the
    messages of a chat, else a text; null where the texts were pruned, and everywhere unless
    ``prompts``. `JUDGED` is null without ``judge``. ``parts``, ``extra`` and ``prompt`` are objects
    in JSONL, JSON text in Parquet. There is no key or address in a ledger, so none in the file.

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
        rows = _rows(db, study, campaign, lost)
        with atomic_path(file) as temporary:
            return write(temporary, _completed(rows, judge, ledger if prompts else None))


def _completed(
    batches: Iterable[list[dict[str, Any]]], judge: Judge | None, ledger: Ledger | None
) -> Iterator[list[dict[str, Any]]]:
    """The rows with their judgement and prompt; not more at once than some megabytes of prompts."""
    for rows in batches:
        for row in rows:
            row |= dict.fromkeys((*JUDGED, _PROMPT))
        if judge is not None:
            judge(rows)
        start = size = 0
        for end, row in enumerate(rows, 1):
            prompt = None if ledger is None else ledger.find_prompt(row["call_key"])
            if prompt is not None:
                row[_PROMPT] = prompt.as_dicts() or prompt.text
                size += sum(map(len, prompt.contents()))
            if size > _MOST_CHARS:
                yield rows[start:end]
                rows[start:end] = [{}] * (end - start)
                start, size = end, 0
        yield rows[start:]


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
    results = ", ".join(map(either, _OF_RESULT))
    # The last attempt's failure counts, and only where there is no result.
    sql = (
        f"SELECT {calls}, {results}, (SELECT count(*) FROM failures d WHERE d.call_key = c.call_key"
        " AND d.maybe_paid = 1), f.kind, f.message, f.at FROM study_calls c"
        f"{joined()} LEFT JOIN failures f ON NOT {ANSWERED} AND f.attempt_id ="
        " (SELECT max(g.attempt_id) FROM failures g WHERE g.call_key = c.call_key)"
        f" WHERE c.study = ? AND c.call_key > ? AND ({ANSWERED} OR f.final = 1)"
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


def _write_jsonl(path: Path, batches: Iterator[list[dict[str, Any]]]) -> Exported:
    done = Exported()
    with path.open("w", encoding="utf-8") as file:
        for rows in batches:
            done = done.plus(rows)
            for row in rows:
                nested = {name: json.loads(row[name]) for name in _JSON if row[name]}
                file.write(json.dumps(row | nested, ensure_ascii=False) + "\n")
    return done


def _write_parquet(path: Path, batches: Iterator[list[dict[str, Any]]]) -> Exported:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {field.name: field for table in ("calls", "results") for field in arrow_schema(table)}
    named = [kinds[name] for name in [*_OF_CALL, *_OF_RESULT]]
    answers = ANSWERS.arrow_schema()
    judged = [pa.field(name, answers.field(name).type) for name in JUDGED]
    schema = pa.schema([*named, (_MAYBE_PAID, pa.int64()), *judged, (_PROMPT, pa.string())])
    done = Exported()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in batches:
            done = done.plus(rows)
            for row in rows:
                if row[_PROMPT] is not None:
                    row[_PROMPT] = json.dumps(row[_PROMPT], ensure_ascii=False)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return done


KEPT_MEMBERS = ("documents/lists.json", "documents/documents.parquet")
"""In archives of studies whose experiments cannot make their documents again from the study."""


@dataclass(frozen=True, slots=True)
class KeptList:
    """The documents of an experiment.

    Attributes:
        made_by: hash of the inputs that decide them.
        sources: their sources, JSON-ready.
        rows: a mapping a document, with ``document_id`` and ``text``; JSON-ready.
    """

    made_by: str
    sources: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def pack(lists: Mapping[str, KeptList]) -> dict[str, bytes]:
    """Return the members of an archive that hold ``lists``, by experiment; none without any."""
    import pyarrow as pa

    if not lists:
        return {}
    heads = {
        name: {"made_by": one.made_by, "sources": dict(one.sources)} for name, one in lists.items()
    }
    rows = [
        {
            "experiment": name,
            "values": json.dumps({k: v for k, v in row.items() if k != "text"}, sort_keys=True),
            "text": row["text"],
        }
        for name, one in lists.items()
        for row in one.rows
    ]
    table = pa.Table.from_pylist(rows, schema=_schema())
    return dict(
        zip(
            KEPT_MEMBERS, (container.json_bytes(heads), container.parquet_bytes(table)), strict=True
        )
    )


def unpack(members: Mapping[str, bytes], allowance: Allowance) -> dict[str, KeptList]:
    """Return the lists by experiment; each text is the one that its id says.

    Raises:
        StoreError: they are not as `pack` makes them.
    """
    heads_name, table_name = KEPT_MEMBERS
    if heads_name not in members:
        return {}
    file = allowance.file
    table = container.parquet_table(members[table_name], table_name, _schema(), allowance)
    with malformed(file, heads_name):
        heads = json_object(members[heads_name])
        lists = {
            name: KeptList(_text(head["made_by"]), dict(head["sources"]), [])
            for name, head in heads.items()
        }
    with malformed(file, table_name):
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in lists}
        for row in table.to_pylist():
            rows[row["experiment"]].append({**json_object(row["values"]), "text": row["text"]})
        for row in (row for of in rows.values() for row in of):
            if hashlib.sha256(_text(row["text"]).encode()).hexdigest() != row["document_id"]:
                raise ValueError("document_id")
    return {name: KeptList(docs.made_by, docs.sources, rows[name]) for name, docs in lists.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in ("experiment", "values", "text")])
