"""Files written here in a benchmark's published form, and what a corpus makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.corpus import EVIDENCE_CHARACTERS, Entry
from contextcliff_dagster.corpora.registry import open_corpus


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def write_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def read(kind: str, path: Path, **options: Any) -> list[Entry]:
    return list(open_corpus(kind, {"path": str(path), **options}).entries())


def at(entry: Entry) -> str:
    """The text from where the answer is."""
    share = entry.example.metadata["evidence_position"]
    return entry.document.text[round(share * len(entry.document.text)) :]


def evidence(entry: Entry) -> list[str]:
    """The text from the beginning of each piece of evidence."""
    return [entry.document.text[start:] for start in entry.example.metadata[EVIDENCE_CHARACTERS]]
