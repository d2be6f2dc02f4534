"""What the rows of an archive have to be before any of them is taken over."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.container import Allowance, damaged, json_object
from contextcliff_dagster.contracts import ContextCliffError, Example, StoreError
from contextcliff_dagster.inference.engines.base import MOST_TOKENS
from contextcliff_dagster.inference.ledger.result_rows import COLUMNS, checksum
from contextcliff_dagster.inference.ledger.schema import (
    CHECKSUMS_SINCE,
    primary_key,
    required_columns,
)
from contextcliff_dagster.inference.models.identity import Identity
from contextcliff_dagster.inference.requests.call_plan import call_key
from contextcliff_dagster.inference.requests.recipe import Recipe

if TYPE_CHECKING:
    import pyarrow as pa

MOST_USD, MOST_NUMBER = 1e9, 4 * MOST_TOKENS
"""Of one charge, and of any other number: a count of tokens, requests or bytes, a time in ms."""
_MOST = {
    **dict.fromkeys(("reserved_usd", "charged_usd", "cost_usd"), MOST_USD),
    **dict.fromkeys(("replicate", "attempt_id"), 2**62),
    **dict.fromkeys(("maybe_paid", "final"), 1),
}
_NO_ANSWER = (None, "context_overflow", "invalid_truncated", "content_filter")

Tables = Mapping[str, "pa.Table"]


def check_rows(
    tables: Tables, head: Mapping[str, Any], documents: Mapping[str, str], allowance: Allowance
) -> None:
    """Refuse rows that no ledger would have written.

    Args:
        tables: the ledger's tables, their columns checked already.
        head: of the archive; names its study and campaigns.
        documents: texts in the archive's sample, by their ids.

    Raises:
        StoreError: a sentence that names the table and what is wrong with it.
    """
    file = allowance.file
    for name, table in tables.items():
        _check_table(file, name, table)
    rows = {name: table.to_pylist() for name, table in tables.items()}
    study, campaigns = head["study"], {row["campaign"] for row in rows["campaigns"]}
    if campaigns != set(head["campaigns"]):
        raise damaged(file, "its campaigns are not those that it names")
    recipes = {row["recipe_hash"]: _recipe(file, row) for row in rows["recipes"]}
    for row in rows["identities"]:
        _require(
            file,
            "identities",
            Identity(_json(file, "identities", row["body"])).hash == row["identity_hash"],
        )
    own = {row["document_id"]: _check_document(row, allowance) for row in rows["documents"]}
    texts = {**documents, **own}
    known = {
        "call_key": {row["call_key"] for row in rows["calls"]},
        "attempt_id": {row["attempt_id"] for row in rows["attempts"]},
        "document_id": {row["document_id"] for row in rows["documents"]} | set(documents),
        "recipe_hash": recipes.keys(),
        "identity_hash": {row["identity_hash"] for row in rows["identities"]},
        "campaign": campaigns,
    }
    for name in rows:
        for column, values in known.items():
            if column in tables[name].column_names:
                strange = set(tables[name].column(column).to_pylist()) - values
                _require(file, name, not strange, f"a {column} that it does not describe")
    for name in ("campaigns", "campaign_models"):
        _require(file, name, {row["study"] for row in rows[name]} <= {study}, "another study")
    results = {row["call_key"]: row for row in rows["results"]}
    signed = head["versions"]["ledger"] >= CHECKSUMS_SINCE
    for row in results.values():
        _check_result(file, row, signed=signed)
    for row in rows["calls"]:
        before = _check_call(file, row, recipes[row["recipe_hash"]], results.get(row["call_key"]))
        there = row["call_key"] not in before and all(k in known["call_key"] for k in before)
        _require(file, "calls", there, "a call after one that it does not describe")
        text, question = texts[row["document_id"]], row["question"]
        if text is not None and question and not before:
            prompt = recipes[row["recipe_hash"]].render(text, question, row["replicate"])
            _require(file, "calls", prompt.hash == row["prompt_hash"], "a prompt of another text")


def _check_table(file: Path, name: str, table: pa.Table) -> None:
    """Keys, values that have to be there, amounts and times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    refuse = partial(_require, file, name)
    for column in required_columns(name):
        if column in table.column_names:  # an archive of an older version has fewer
            refuse(not table.column(column).null_count, f"an empty {column}")
    key = list(zip(*(table.column(one).to_pylist() for one in primary_key(name)), strict=True))
    refuse(len(set(key)) == len(key), "a row twice")
    for column, values in zip(table.column_names, table.columns, strict=True):
        if values.type == pa.float64():
            refuse(
                pc.all(pc.is_finite(values)).as_py() is not False, f"a {column} that is no number"
            )
        if values.type in (pa.int64(), pa.float64()) and values.null_count < len(values):
            low, high = pc.min_max(values).as_py().values()
            most = _MOST.get(column, MOST_NUMBER)
            refuse(low >= 0 and high <= most, f"{column!r} out of all bounds")
        if column in ("campaign", "model"):  # they become names of files and lines on a terminal
            names = filter(None, pc.unique(values).to_pylist())
            refuse(all(n.isprintable() and len(n) <= 200 for n in names), f"a strange {column}")
        if column.endswith("_at") or column == "at":
            for text in pc.unique(values).to_pylist():
                refuse(text is None or _is_time(text), f"a {column} that is no time")


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _check_document(row: Mapping[str, Any], allowance: Allowance) -> str | None:
    import pyarrow as pa

    if row.get("pruned_at") is not None:
        return None
    allowance.take(row["bytes"])
    try:
        text = pa.Codec("zstd").decompress(row["zstd"], row["bytes"], asbytes=True)
        whole, decoded = hashlib.sha256(text).hexdigest() == row["document_id"], text.decode()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(allowance.file, "a document of its table 'documents' is not whole") from error
    _require(allowance.file, "documents", whole, "a text that is not what its id says")
    return str(decoded)


def _recipe(file: Path, row: Mapping[str, Any]) -> Recipe:
    body = _json(file, "recipes", row["body"])
    try:
        recipe = Recipe.from_dict(body)
        same = recipe.hash == row["recipe_hash"]
    except (ContextCliffError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise damaged(file, "its table 'recipes' holds no recipe") from error
    _require(file, "recipes", same)
    return recipe


def _check_call(
    file: Path, row: Mapping[str, Any], recipe: Recipe, result: Mapping[str, Any] | None
) -> Collection[str]:
    """Refuse an answer under the key of another question; the calls that it comes after."""
    _require(file, "calls", row["replicate"] < recipe.replicates, "an unknown replicate")
    parts = _json(file, "calls", row["parts"]) if row.get("parts") is not None else None
    after: list[str] = (parts or {}).get("after", [])
    listed = isinstance(after, list) and all(isinstance(key, str) for key in after)
    _require(file, "calls", listed, "an 'after' that is no list of calls")
    if after:  # its key is made of answers in the words of the experiment
        return after
    example = Example(row["example_id"], row["document_id"], row["question"], (), "")
    key = call_key(row["identity_hash"], recipe, example, row["replicate"], row["campaign"], parts)
    pruned = not row["question"] and (result is None or result.get("pruned_at") is not None)
    _require(file, "calls", key == row["call_key"] or pruned, "a call under another's key")
    return ()


def _check_result(file: Path, row: Mapping[str, Any], *, signed: bool) -> None:
    noted = row.get("checksum")
    needless = not signed or row.get("pruned_at") is not None
    _require(file, "results", noted is not None or needless, "an answer without a checksum")
    if noted is not None and noted != result_checksum(row):
        raise StoreError(
            f"{file} is damaged or was tampered with: the answer to call "
            f"{row['call_key'][:12]!r} is not what its checksum says; get a fresh copy."
        )
    _require(file, "results", row["no_answer"] in _NO_ANSWER, "an unknown no_answer")
    if row.get("extra") is not None:
        _json(file, "results", row["extra"])


def result_checksum(row: Mapping[str, Any]) -> str:
    """The checksum of an answer as the archive has it."""
    return checksum(row["call_key"], {name: row.get(name) for name in COLUMNS})


def _json(file: Path, table: str, text: str) -> dict[str, Any]:
    try:
        return json_object(text)
    except ValueError as error:
        raise damaged(file, f"its table {table!r} holds malformed JSON ({error})") from error


def _require(
    file: Path, table: str, holds: bool, what: str = "something under another's hash"
) -> None:
    if not holds:
        raise damaged(file, f"its table {table!r} holds {what}")


def check_texts(file: Path, texts: Iterable[tuple[str | None, str | None]]) -> dict[str, str]:
    """Document id -> text of the archive's sample.

    Raises:
        StoreError: a text is not what its id says, is missing, or is there twice.
    """
    checked: dict[str, str] = {}
    for document_id, text in texts:
        whole = text is not None and document_id not in checked
        if not whole or hashlib.sha256(str(text).encode()).hexdigest() != document_id:
            raise damaged(file, "a document of its sample is not what its id says")
        checked[str(document_id)] = str(text)
    return checked
