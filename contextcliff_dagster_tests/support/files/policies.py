"""Policies as `contextcliff policy` writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

TODAY = datetime.now(UTC).date()
TASK = "lookup"


def policy_row(model: str, cap: int = 1_000, **changed: Any) -> dict[str, Any]:
    """One that holds for 90 days and counts with the tokenizer of the reference models."""
    return {
        "schema_version": "1.1", "model": model, "identity": None, "task": TASK,
        "tokenizer": "reference", "tokenizer_sha256": None, "safe_cap_tokens": cap,
        "cap_prompt_tokens": cap + 200, "tolerance": 0.3, "confidence": 0.95, "n": 200,
        "n_documents": 200, "date": TODAY.isoformat(),
        "expiry": (TODAY + timedelta(days=90)).isoformat(), "study": "s", "campaign": "c",
        "score": "em", **changed,
    }  # fmt: skip


def write_policies(path: Path, *rows: dict[str, Any]) -> Path:
    """Put in place at once, as `contextcliff policy` does."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(list(rows)), encoding="utf-8")
    return fresh.replace(path)
