"""Export of results as one flat file, and archiving of documents with no other source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.archive import container
from contextcliff_dagster.archive.container import Allowance, json_object, malformed
from contextcliff_dagster.contracts import ANSWERS, StoreError, StudyError
from contextcliff_dagster.inference.ledger.backend import Database
from contextcliff_dagster.inference.ledger.schema import ANSWERED, COLUMNS, columns, either, joined
from contextcliff_dagster.store import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

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
    *("task", "document", "length_tokens", "bin", "evidence_position"),
)
"""Columns of `contracts.ANSWERS` that come from a study's sample and records, not the ledger."""

Judge = Callable[[list[dict[str, Any]]], None]
"""Function that fills in the `JUDGED` columns of rows in place."""


class Exported(NamedTuple):
    """Counts of an export: rows, and rows with a prompt, a score and accepted answers."""

    rows: int = 0
    prompts: int = 0
    scores: int = 0
    accepted: int = 0

    def plus(self, rows: list[dict[str, Any]]) -> Exported:
        """Return the counts with ``rows`` added."""
        filled = (
            sum(row[name] is not None for row in rows) for name in (_PROMPT, "score", "accepted")
        )
        return Exported(*map(add, self, (len(rows), *filled)))


def export_results(
    ledger: Ledger,
    study: str,
    campaign: str | None,
    file: Path,
    *,
    judge: Judge | None = None,
    prompts: bool = True,
) -> Exported:
    """Write every finished call of the study to ``file``, one row each; return the counts.

    The suffix chooses JSONL or Parquet. Rows are sorted by ``call_key``; the same ledger gives the
    same rows. A call that a run gave up has the ``no_answer`` value ``transport_error``.
    ``maybe_paid`` counts a call's requests that died after sending, so may have been paid.
    ``prompt`` is rebuilt from the ledger's documents: chat messages or a text, null if the texts
    were pruned or ``prompts`` is False. ``parts``, ``extra`` and ``prompt`` are objects in JSONL
    and JSON text in Parquet. The file has no API key or address, because the ledger has none.

    Raises:
        StudyError: the ledger has no record of the study (or campaign).
        StoreError: unknown suffix, or the ledger cannot be read or the file not written.
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
    """Yield the rows with judgement and prompt, holding only some MB of prompts at a time."""
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
    campaigns = [row[0] for row in rows]
    if not campaigns:
        raise StudyError(f"The ledger has no study {study!r}; see `contextcliff campaign list`.")
    if campaign is not None and campaign not in campaigns:
        raise StudyError(
            f"Study {study!r} has no campaign {campaign!r} in the ledger; "
            f"it has {', '.join(campaigns)}."
        )


def _rows(
    db: Database, study: str, campaign: str | None, lost: Mapping[str, int]
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in batches, so that the whole study need not fit into memory."""
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
        parameters = (study, last) if campaign is None else (study, last, campaign)
        rows = db.execute(sql, parameters).fetchall()
        if rows:
            yield [_row(values, lost) for values in rows]
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1][_OF_CALL.index("call_key")]


def _row(values: tuple[Any, ...], lost: Mapping[str, int]) -> dict[str, Any]:
    *fields, died, kind, message, at = values
    row = dict(zip([*_OF_CALL, *_OF_RESULT], fields, strict=True))
    row[_MAYBE_PAID] = died + lost.get(row["call_key"], 0)
    if kind is not None:
        row |= {"no_answer": "transport_error", "error": f"{kind}: {message}", "finished_at": at}
    return row


def _write_jsonl(path: Path, batches: Iterator[list[dict[str, Any]]]) -> Exported:
    exported = Exported()
    with path.open("w", encoding="utf-8") as file:
        for rows in batches:
            exported = exported.plus(rows)
            for row in rows:
                nested = {name: json.loads(row[name]) for name in _JSON if row[name]}
                file.write(json.dumps(row | nested, ensure_ascii=False) + "\n")
    return exported


def _write_parquet(path: Path, batches: Iterator[list[dict[str, Any]]]) -> Exported:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from contextcliff_dagster.archive.calls import arrow_schema

    kinds = {field.name: field for table in ("calls", "results") for field in arrow_schema(table)}
    fields = [kinds[name] for name in [*_OF_CALL, *_OF_RESULT]]
    answers = ANSWERS.arrow_schema()
    judged = [pa.field(name, answers.field(name).type) for name in JUDGED]
    schema = pa.schema([*fields, (_MAYBE_PAID, pa.int64()), *judged, (_PROMPT, pa.string())])
    exported = Exported()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in batches:
            exported = exported.plus(rows)
            for row in rows:
                if row[_PROMPT] is not None:
                    row[_PROMPT] = json.dumps(row[_PROMPT], ensure_ascii=False)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return exported


KEPT_MEMBERS = ("documents/lists.json", "documents/documents.parquet")
"""Archive members with experiments' documents that cannot be rebuilt from the study."""


@dataclass(frozen=True, slots=True)
class KeptList:
    """The documents of an experiment: ``made_by`` is the hash of the inputs that determine them;
    ``sources`` and ``rows`` (``document_id``, ``text`` and more) are JSON-ready."""

    made_by: str
    sources: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def pack(lists: Mapping[str, KeptList]) -> dict[str, bytes]:
    """Return the archive members that hold ``lists`` (by experiment); empty without lists."""
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
        for name, documents in lists.items()
        for row in documents.rows
    ]
    table = pa.Table.from_pylist(rows, schema=_schema())
    contents = container.json_bytes(heads), container.parquet_bytes(table)
    return dict(zip(KEPT_MEMBERS, contents, strict=True))


def unpack(members: Mapping[str, bytes], allowance: Allowance) -> dict[str, KeptList]:
    """Return the document lists by experiment, with each text checked against its id.

    Raises:
        StoreError: the members are not as `pack` writes them.
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
            if container.sha256(_text(row["text"]).encode()) != row["document_id"]:
                raise ValueError("document_id")
    return {name: KeptList(docs.made_by, docs.sources, rows[name]) for name, docs in lists.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in ("experiment", "values", "text")])
