"""Small files of warehouse ledgers, as a user would bring them, and what can be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextcliff_dagster.reference.warehouse_documents import iter_ledgers

Row = dict[str, Any]


def rows(n: int = 60, *, max_tokens: int = 300, min_tokens: int = 40) -> list[Row]:
    """``n`` lookup questions, one per document, that the reference models can answer."""
    found: list[Row] = []
    for ledger in iter_ledgers(
        seed=5, n_documents=2 * n, min_tokens=min_tokens, max_tokens=max_tokens
    ):
        question = next((q for q in ledger.questions if q.task == "lookup"), None)
        if question is not None:
            answers = list(question.answers)
            found.append(
                {"context": ledger.text, "question": question.question, "answers": answers}
            )
    return [{"id": f"e{i}", **row} for i, row in enumerate(found[:n])]


def write(path: Path, data: list[Row]) -> Path:
    """The rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    return path


def _change(key: str, value: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        data = rows()
        data[7][key] = value
        write(path, data)

    return spoil


def _one_length(path: Path) -> None:
    data = rows()
    write(
        path,
        [
            {**row, "context": data[0]["context"], "question": f"{row['question']}{i}"}
            for i, row in enumerate(data)
        ],
    )


SPOILED: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "missing": (lambda path: None, ("own.jsonl",)),
    "empty": (lambda path: path.write_bytes(b""), ("own.jsonl", "empty")),
    "a folder": (lambda path: path.mkdir(), ("own.jsonl",)),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 40), ("own.jsonl",)),
    "not UTF-8": (
        lambda path: path.write_bytes('{"context": "caf\xe9"}\n'.encode("latin-1")),
        ("own.jsonl", "UTF-8"),
    ),
    "not JSON": (lambda path: path.write_text("context,question\n"), ("own.jsonl", "line 1")),
    "a duplicate id": (_change("id", "e3"), ("own.jsonl", "e3")),
    "no answers": (_change("answers", []), ("own.jsonl", "line 8", "answer")),
    "NaN": (_change("answers", float("nan")), ("own.jsonl", "line 8", "NaN")),
    "NaN question": (_change("question", float("nan")), ("own.jsonl", "line 8", "NaN")),
    "one length": (_one_length, ("length",)),
}
"""What is wrong with the file -> how to make it so, and words that the sentence must have."""
